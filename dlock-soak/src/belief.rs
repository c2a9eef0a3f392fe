//! From the lines of all processes to what was believed when, and so to histories.

use std::{collections::BTreeMap, time::Duration};

use dlock_core::{FencingToken, Instant, Mode};
use dlock_testkit::{
    Stop,
    history::{Event, History, Op, Reply},
};

use super::{
    line::{CLOCK_STEP, EXPIRED, GONE, Line, Phase, RELEASED, STORE_RESET, Wanted, What},
    record::Excuse,
    times::Times,
};

/// One acquisition of one name, from the asking to the end of the belief.
#[derive(Clone, Debug)]
pub(crate) struct Tale {
    /// Task and process.
    pub(crate) actor: usize,
    pub(crate) hold: u64,
    pub(crate) name: String,
    pub(super) kind: Wanted,
    pub(crate) mode: Mode,
    pub(crate) phase: Phase,
    pub(crate) asked: Instant,
    /// When it was known, and by which token.
    pub(crate) got: Option<(Instant, FencingToken)>,
    /// The latest deadline that the guard named.
    pub(crate) until: Instant,
    /// From when on its holder looked whether it is lost.
    pub(crate) looked: Instant,
    pub(crate) shared: Option<Instant>,
    /// Whether it was asked for anew, and so lost its place in line.
    pub(super) again: bool,
    /// When the grant may have come: a process that was stopped learns of it when it goes on.
    pub(super) heard: Option<Instant>,
    /// When it began to be let go.
    pub(crate) let_go: Option<Instant>,
    /// When and how that was answered.
    pub(crate) left: Option<(Instant, String)>,
    pub(crate) lost: Option<(Instant, String)>,
    /// When the attempt came to nothing, how, and what was said.
    pub(crate) not: Option<(Instant, String, String)>,
    /// When its process was killed or its task aborted.
    pub(crate) cut: Option<Instant>,
}

/// How many processes, tasks and holds there can be, so that the numbers of two do not meet.
const PROCESSES: usize = 100_000;
const TASKS: usize = 1_000_000;
const HOLDS: u64 = 1_000_000_000;

/// Reads the log of one process. A line that its death cut off is not for anybody.
pub(crate) fn read(text: &str) -> Result<Vec<Line>, Stop> {
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole.lines().map(str::parse).collect()
}

/// What the lines tell. Those of one acquisition are in order; `killed` is when processes were.
pub(crate) fn tales<'a>(
    lines: impl IntoIterator<Item = &'a Line> + Clone,
    killed: &BTreeMap<usize, Instant>,
) -> Result<Vec<Tale>, Stop> {
    let idle = idle(lines.clone());
    let mut tales: BTreeMap<(usize, u64), Tale> = BTreeMap::new();
    let mut aborts: BTreeMap<usize, Vec<(usize, Instant)>> = BTreeMap::new();
    for line in lines {
        let Some(hold) = line.hold else {
            if let What::Abort { below } = line.what {
                aborts.entry(line.process).or_default().push((below, line.at));
            }
            continue;
        };
        let id = (line.process, hold);
        if matches!(line.what, What::Ask { .. }) {
            tales.insert(id, Tale::begin(line, hold)?);
            continue;
        }
        let unasked = || Stop::failed(format!("nobody asked for this: {line}"));
        tales.get_mut(&id).ok_or_else(unasked)?.add(line);
    }
    for ((process, _), tale) in &mut tales {
        let aborts = aborts.get(process).into_iter().flatten();
        let mut aborts = aborts.filter(|(below, _)| tale.actor % TASKS < *below);
        let aborted = aborts.next().map(|(_, at)| *at);
        tale.cut = killed.get(process).copied().into_iter().chain(aborted).min();
        tale.heard = tale
            .got
            .map(|(at, _)| idle.get(process).and_then(|idle| idle.since(at, WAKING)).unwrap_or(at));
    }
    Ok(tales.into_values().collect())
}

/// How long it may take until all tasks of a process that goes on have run.
const WAKING: Duration = Duration::from_millis(50);

/// When each process did not run.
pub(super) fn idle<'a>(lines: impl IntoIterator<Item = &'a Line>) -> BTreeMap<usize, Times> {
    let mut all: BTreeMap<usize, Vec<(Instant, Instant)>> = BTreeMap::new();
    for line in lines {
        if let What::Late { since } = line.what {
            all.entry(line.process).or_default().push((since, line.at));
        }
    }
    all.into_iter().map(|(process, times)| (process, Times::of(times))).collect()
}

impl Tale {
    fn begin(line: &Line, hold: u64) -> Result<Self, Stop> {
        let What::Ask { task, kind, phase, mode, name } = &line.what else {
            return Err(Stop::failed(format!("not asked for: {line}")));
        };
        if line.process >= PROCESSES || *task >= TASKS || hold >= HOLDS {
            return Err(Stop::failed(format!("a number is too large: {line}")));
        }
        Ok(Self {
            actor: line.process * TASKS + task,
            hold: line.process as u64 * HOLDS + hold,
            name: name.clone(),
            kind: *kind,
            mode: *mode,
            phase: *phase,
            asked: line.at,
            got: None,
            until: Instant::from_nanos(0),
            looked: line.at,
            again: false,
            heard: None,
            shared: None,
            let_go: None,
            left: None,
            lost: None,
            not: None,
            cut: None,
        })
    }

    fn add(&mut self, line: &Line) {
        let at = line.at;
        match &line.what {
            What::Got { token, until } => {
                self.got = Some((at, *token));
                self.looked = at;
                self.until = *until;
            }
            What::Keep { until } => self.until = self.until.max(*until),
            What::Share {} => self.shared = Some(at),
            What::Look {} => self.looked = at,
            What::Let {} => self.let_go = Some(at),
            What::Left { how } => self.left = Some((at, how.clone())),
            What::Lost { how } => self.lost = Some((at, how.clone())),
            What::Not { how, text } => self.not = Some((at, how.clone(), text.clone())),
            What::Again {} => self.again = true,
            What::Ask { .. } | What::Late { .. } | What::Abort { .. } | What::Uses { .. } => {}
        }
    }

    /// The number of its process.
    pub(super) fn process(&self) -> usize {
        self.actor / TASKS
    }

    /// When the attempt was over, however it went; `None` if it was to the end of the run.
    pub(super) fn answered(&self) -> Option<Instant> {
        let got = self.got.map(|(at, _)| at);
        let not = self.not.as_ref().map(|(at, ..)| *at);
        [got, not, self.cut].into_iter().flatten().min()
    }

    /// When the belief ended.
    pub(crate) fn ended(&self) -> Instant {
        let lost = self.lost.as_ref().map(|(at, _)| *at);
        let all = [self.let_go, lost, self.cut];
        all.into_iter().flatten().fold(self.until, Instant::min)
    }

    /// Whether anybody ever believed in it. A process that was stopped may learn of a grant when
    /// its deadline has gone by.
    pub(super) fn was_believed(&self) -> bool {
        self.got.is_some_and(|(at, _)| at < self.ended())
    }

    /// Whether the holder was told that the store does not know it any more, at a time when it was
    /// to be believed.
    pub(super) fn was_revoked(&self) -> bool {
        self.lost.as_ref().is_some_and(|(at, how)| how != EXPIRED && *at < self.until)
    }

    /// When its holder was told that the clock of the store had stepped, or that the store had lost
    /// what it knew.
    pub(super) fn told_of_trouble(&self) -> Option<Instant> {
        let (at, how) = self.lost.as_ref()?;
        [CLOCK_STEP, STORE_RESET].contains(&how.as_str()).then_some(*at)
    }

    /// Whether its release was told that it had been lost before, at a time when it was to be
    /// believed.
    pub(super) fn was_gone(&self) -> bool {
        self.left.as_ref().is_some_and(|(at, how)| how == GONE && *at < self.until)
    }

    /// Whether it is not known how the attempt ended although its process lived on.
    pub(super) fn is_open(&self) -> bool {
        self.got.is_none() && self.not.is_none() && self.cut.is_none()
    }

    fn event(&self, op: Op, invoked: Instant, answer: Option<(Instant, Reply)>) -> Event {
        Event { actor: self.actor, hold: self.hold, op, invoked, answer }
    }

    fn events(&self) -> Vec<Event> {
        let acked = |token, until| Reply::Acked { token, until };
        let Some((at, token)) = self.got else {
            let answer = self.not.as_ref().map(|(at, ..)| (*at, Reply::Unknown));
            return vec![self.event(Op::Acquire(self.mode), self.asked, answer)];
        };
        let ended = self.ended();
        let granted = Some((at, acked(Some(token), Some(ended))));
        let mut events = vec![self.event(Op::Acquire(self.mode), self.asked, granted)];
        if let Some(turn) = self.shared.filter(|turn| *turn < ended) {
            events.push(self.event(Op::Downgrade, turn, None));
        }
        if let Some(begun) = self.let_go {
            let answer = match &self.left {
                Some((at, how)) if how == RELEASED => Some((*at, acked(None, None))),
                _ => None,
            };
            events.push(self.event(Op::Release, begun, answer));
        }
        events
    }
}

impl Excuse {
    /// Whether the store may have forgotten this hold.
    pub(super) fn covers(&self, tale: &Tale) -> bool {
        self.may_have_met(tale) && tale.ended() > self.at
    }

    /// Whether the store may have forgotten this hold before its release came, which it has
    /// answered then.
    pub(super) fn covers_release(&self, tale: &Tale, answered: Instant) -> bool {
        self.may_have_met(tale) && answered > self.at
    }

    fn may_have_met(&self, tale: &Tale) -> bool {
        tale.heard.is_some_and(|heard| heard <= self.excused_until)
    }
}

/// What was granted and believed in: for the checkers of exclusion, readers and permits.
pub(super) fn beliefs(tales: &[Tale]) -> History {
    history(tales.iter().filter(|tale| tale.was_believed()).flat_map(Tale::events))
}

/// The same, where what is excused counts as ended at the beginning of its excuse.
pub(super) fn excused_beliefs(tales: &[Tale], excuses: &[Excuse]) -> History {
    history(
        tales
            .iter()
            .filter_map(|tale| {
                let excused = excuses.iter().filter(|excuse| excuse.covers(tale));
                let cut = excused.map(|excuse| excuse.at).chain(tale.cut).min();
                let tale = Tale { cut, ..tale.clone() };
                tale.was_believed().then(|| tale.events())
            })
            .flatten(),
    )
}

/// Everything that was granted, believed in or not: for the checker of tokens.
pub(super) fn grants(tales: &[Tale]) -> History {
    history(tales.iter().filter(|tale| tale.got.is_some()).flat_map(Tale::events))
}

/// The time in which all had to be well: for the checker of wake-ups. Who has waited since before
/// it counts as one who came with it: until then a dead holder may have been in the way. Who was
/// not asked to say that the lock is free, because the guard was dropped, made it so when it was
/// dropped.
pub(super) fn peace(tales: &[Tale]) -> History {
    let well = |tale: &&Tale| tale.phase == Phase::Well;
    let since = tales.iter().filter(well).map(|tale| tale.asked).min();
    let since = since.unwrap_or(Instant::from_nanos(u64::MAX));
    let of_it = |tale: &&Tale| match (&tale.got, &tale.not) {
        (Some(_), _) => tale.left.as_ref().map_or(tale.ended(), |(at, _)| *at) >= since,
        (None, Some((at, ..))) => *at >= since,
        (None, None) => tale.is_open(),
    };
    history(tales.iter().filter(of_it).flat_map(|tale| {
        let mut events = tale.events();
        if tale.got.is_none_or(|(at, _)| at > since) {
            events[0].invoked = events[0].invoked.max(since);
        }
        if tale.got.is_some() {
            let freed = (tale.ended(), Reply::Acked { token: None, until: None });
            match events.iter_mut().find(|event| event.op == Op::Release) {
                Some(release) => release.answer = release.answer.or(Some(freed)),
                None => events.push(tale.event(Op::Release, tale.ended(), Some(freed))),
            }
        }
        events
    }))
}

fn history(events: impl Iterator<Item = Event>) -> History {
    let mut events: Vec<Event> = events.collect();
    events.sort_by_key(|event| event.invoked);
    History { events, ended: Some(dlock_testkit::support::now()) }
}

#[cfg(test)]
mod tests;
