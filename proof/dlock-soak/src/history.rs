//! Turns the log lines of all processes into acquisitions with their holds, and these into
//! histories.

use std::{collections::BTreeMap, time::Duration};

use dlock_core::{FencingToken, Instant, Mode};
use dlock_testkit::{
    Stop,
    history::{Event, History, Op, Reply},
};

use super::{
    line::{CLOCK_STEP, EXPIRED, GONE, Line, Phase, RELEASED, STORE_RESET, Wanted, What},
    record::{Excuse, LostGrant},
    times::Times,
};

/// One acquisition of one name, from the request to the end of the hold.
#[derive(Clone, Debug)]
pub(crate) struct Acquisition {
    /// The task and the process.
    pub(crate) actor: usize,
    pub(crate) hold: u64,
    pub(crate) name: String,
    pub(super) kind: Wanted,
    pub(crate) mode: Mode,
    pub(crate) phase: Phase,
    pub(crate) asked: Instant,
    /// The time at which the client knew of the grant, and the token.
    pub(crate) got: Option<(Instant, FencingToken)>,
    /// The latest local deadline that the guard reported.
    pub(crate) until: Instant,
    /// The time from which the holder checked whether the lock is lost.
    pub(crate) looked: Instant,
    pub(crate) shared: Option<Instant>,
    /// Whether the lock was requested again, so that the claim lost its place in the queue.
    pub(super) again: bool,
    /// The earliest time of the grant: a process that was stopped learns of it when it is resumed.
    pub(super) heard: Option<Instant>,
    /// The time at which the release began.
    pub(crate) release_began: Option<Instant>,
    /// The time until which the store has promised to keep the lock after the work.
    pub(super) promised: Option<Instant>,
    /// The time and the content of the answer to the release.
    pub(crate) left: Option<(Instant, String)>,
    pub(crate) lost: Option<(Instant, String)>,
    /// The time at which the attempt failed, the kind of the failure, and its text.
    pub(crate) not: Option<(Instant, String, String)>,
    /// The time at which its process was killed or its task aborted.
    pub(crate) cut: Option<Instant>,
}

/// Limits on the numbers of processes, tasks and holds, so that two numbers never collide.
const PROCESSES: usize = 100_000;
const TASKS: usize = 1_000_000;
const HOLDS: u64 = 1_000_000_000;

/// Reads the log of one process. A line that was cut off by the death of the process is ignored.
pub(crate) fn read(text: &str) -> Result<Vec<Line>, Stop> {
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole.lines().map(str::parse).collect()
}

/// Returns the acquisitions in these lines. The lines of one acquisition must be in order. `killed`
/// has the times at which processes were killed.
pub(crate) fn acquisitions<'a>(
    lines: impl IntoIterator<Item = &'a Line> + Clone,
    killed: &BTreeMap<usize, Instant>,
) -> Result<Vec<Acquisition>, Stop> {
    let idle = idle(lines.clone());
    let mut acquisitions: BTreeMap<(usize, u64), Acquisition> = BTreeMap::new();
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
            acquisitions.insert(id, Acquisition::begin(line, hold)?);
            continue;
        }
        let unasked = || Stop::failed(format!("nobody asked for this: {line}"));
        acquisitions.get_mut(&id).ok_or_else(unasked)?.add(line);
    }
    for ((process, _), acquisition) in &mut acquisitions {
        let aborts = aborts.get(process).into_iter().flatten();
        let mut aborts = aborts.filter(|(below, _)| acquisition.actor % TASKS < *below);
        let aborted = aborts.next().map(|(_, at)| *at);
        acquisition.cut = killed.get(process).copied().into_iter().chain(aborted).min();
        acquisition.heard = acquisition
            .got
            .map(|(at, _)| idle.get(process).and_then(|idle| idle.since(at, WAKING)).unwrap_or(at));
    }
    Ok(acquisitions.into_values().collect())
}

/// The longest time until all tasks of a resumed process have run.
const WAKING: Duration = Duration::from_millis(50);

/// Returns the times in which each process did not run.
pub(super) fn idle<'a>(lines: impl IntoIterator<Item = &'a Line>) -> BTreeMap<usize, Times> {
    let mut all: BTreeMap<usize, Vec<(Instant, Instant)>> = BTreeMap::new();
    for line in lines {
        if let What::Late { since } = line.what {
            all.entry(line.process).or_default().push((since, line.at));
        }
    }
    all.into_iter().map(|(process, times)| (process, Times::of(times))).collect()
}

impl Acquisition {
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
            release_began: None,
            promised: None,
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
            What::Let {} => self.release_began = self.release_began.or(Some(at)),
            What::Promise { until } => self.promised = Some(*until),
            What::Left { how } => self.left = Some((at, how.clone())),
            What::Lost { how } => self.lost = Some((at, how.clone())),
            What::Not { how, text } => self.not = Some((at, how.clone(), text.clone())),
            What::Again {} => self.again = true,
            What::Ask { .. } | What::Late { .. } | What::Abort { .. } | What::Uses { .. } => {}
        }
    }

    /// Returns the number of its process.
    pub(super) fn process(&self) -> usize {
        self.actor / TASKS
    }

    /// Returns the time at which the attempt ended with any result; `None` if it lasted until the
    /// end of the run.
    pub(super) fn answered(&self) -> Option<Instant> {
        let got = self.got.map(|(at, _)| at);
        let not = self.not.as_ref().map(|(at, ..)| *at);
        [got, not, self.cut].into_iter().flatten().min()
    }

    /// Returns the end of the hold.
    pub(crate) fn ended(&self) -> Instant {
        let lost = self.lost.as_ref().map(|(at, _)| *at);
        let all = [self.release_began, lost, self.cut];
        all.into_iter().flatten().fold(self.until, Instant::min)
    }

    /// Whether the client ever had reason to assume that it held the lock. A process that was stopped may learn
    /// of a grant after its local deadline.
    pub(super) fn was_held(&self) -> bool {
        self.got.is_some_and(|(at, _)| at < self.ended())
    }

    /// Whether the holder was notified before its local deadline that the store no longer knew the
    /// claim.
    pub(super) fn was_revoked(&self) -> bool {
        self.lost.as_ref().is_some_and(|(at, how)| how != EXPIRED && *at < self.until)
    }

    /// Returns the time at which the holder was notified of a clock step of the store, or of lost
    /// data of the store.
    pub(super) fn warned(&self) -> Option<Instant> {
        let (at, how) = self.lost.as_ref()?;
        [CLOCK_STEP, STORE_RESET].contains(&how.as_str()).then_some(*at)
    }

    /// Whether the release was answered with a loss before the local deadline, and the holder had not
    /// learned of it before.
    pub(super) fn was_gone(&self) -> bool {
        let knew = self.lost.as_ref().is_some_and(|(_, how)| how == EXPIRED);
        !knew && self.left.as_ref().is_some_and(|(at, how)| how == GONE && *at < self.until)
    }

    /// Whether the result of the attempt is unknown although its process was not killed and its
    /// task was not aborted.
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
        if let Some(begun) = self.release_began {
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
    /// Returns an excuse for any grant that began before its end.
    pub(super) fn of_any(at: Instant, excused_until: Instant) -> Self {
        Self { at, excused_until, lost: None, is_guarded: false }
    }

    /// Whether the store may have lost this hold.
    pub(super) fn covers(&self, acquisition: &Acquisition) -> bool {
        self.covers_release(acquisition, acquisition.ended())
    }

    /// Whether the store may have lost this hold before it answered the release, or afterwards the
    /// record of the release, so that it answers a repeated one like a loss.
    pub(super) fn covers_release(&self, acquisition: &Acquisition, answered: Instant) -> bool {
        let began = acquisition.release_began.is_some_and(|began| began <= self.at);
        answered > self.at && (began || self.over(acquisition, Duration::ZERO).is_some())
    }

    /// Returns until when a holder may rely on a lease that the store has lost, if it may have lost
    /// this one. The longest lease is `lease`.
    fn over(&self, acquisition: &Acquisition, lease: Duration) -> Option<Instant> {
        let Some(lost) = &self.lost else {
            let may_have_met = acquisition.heard? <= self.excused_until;
            return may_have_met.then(|| self.excused_until.saturating_add(lease));
        };
        let token = acquisition.got?.1.get();
        let is_of = |grant: &&LostGrant| {
            grant.name == acquisition.name && (grant.tokens.0..=grant.tokens.1).contains(&token)
        };
        lost.iter().find(is_of).map(|grant| grant.until)
    }
}

/// Returns the holds as the clients saw them, for the checkers of exclusion, readers and permits.
pub(super) fn client_holds(acquisitions: &[Acquisition]) -> History {
    history(
        acquisitions
            .iter()
            .filter(|acquisition| acquisition.was_held())
            .flat_map(Acquisition::events),
    )
}

/// Returns the same holds, but ends each excused one at the beginning of its excuse.
pub(super) fn excused_holds(acquisitions: &[Acquisition], excuses: &[Excuse]) -> History {
    history(acquisitions.iter().flat_map(|acquisition| excused(acquisition, excuses)))
}

/// Returns the same holds, and also what is left of each excused one after its excuse. A holder may
/// rely on a lease that the store has lost for as long as that lease; then no renewal succeeds, and
/// it has to know.
pub(super) fn excused_parts(
    acquisitions: &[Acquisition],
    excuses: &[Excuse],
    lease: Duration,
) -> History {
    history(acquisitions.iter().flat_map(|acquisition| {
        let of_it = excuses.iter().filter(|excuse| excuse.covers(acquisition));
        let again = of_it.filter_map(|excuse| excuse.over(acquisition, lease)).max();
        let rest = again.zip(acquisition.got).map(|(again, (got, token))| {
            // A process that was frozen may hear of its grant later than that.
            let since = again.max(got);
            // Another number, since it is compared as a hold of its own.
            let hold = u64::MAX - acquisition.hold;
            Acquisition { hold, asked: since, got: Some((since, token)), ..acquisition.clone() }
        });
        let rest = rest.filter(Acquisition::was_held).map(|rest| rest.events());
        excused(acquisition, excuses).into_iter().chain(rest.unwrap_or_default())
    }))
}

/// Returns the times in which the store has promised to grant the lock to nobody else, whether or
/// not the holder still exists: until its lease and the lock-delay are over, unless it has released
/// the lock before; and the minimum time of a job.
pub(super) fn kept_by_store(
    acquisitions: &[Acquisition],
    excuses: &[Excuse],
    delay: Duration,
) -> History {
    let kept = acquisitions.iter().map(|of| {
        let (until, release_began) = match of.promised {
            // The clocks of the machines have different rates.
            Some(until) => {
                let margin = until.since(of.asked) / 100 + Duration::from_millis(5);
                (until.saturating_sub(margin), None)
            }
            // Work that has ended may have been released since.
            None if matches!(of.kind, Wanted::Job | Wanted::Election) => (of.until, None),
            None => (of.until.saturating_add(delay - delay / 100), of.release_began),
        };
        Acquisition { until, release_began, lost: None, cut: None, ..of.clone() }
    });
    excused_holds(&kept.collect::<Vec<_>>(), excuses)
}

fn excused(acquisition: &Acquisition, excuses: &[Excuse]) -> Vec<Event> {
    let excused = excuses.iter().filter(|excuse| excuse.covers(acquisition));
    let cut = excused.map(|excuse| excuse.at).chain(acquisition.cut).min();
    let acquisition = Acquisition { cut, ..acquisition.clone() };
    if acquisition.was_held() { acquisition.events() } else { Vec::new() }
}

/// Returns all grants, with or without a hold, for the checker of tokens.
pub(super) fn grants(acquisitions: &[Acquisition]) -> History {
    history(
        acquisitions
            .iter()
            .filter(|acquisition| acquisition.got.is_some())
            .flat_map(Acquisition::events),
    )
}

/// Returns the history of the phase without faults, for the checker of wake-ups. If a claim waited
/// before that phase, its wait counts from the beginning of the phase: until then, a dead holder
/// may have blocked it. If no answer confirmed a release, because the guard was dropped, the lock
/// counts as free from the end of the hold.
pub(super) fn without_faults(acquisitions: &[Acquisition]) -> History {
    let well = |acquisition: &&Acquisition| acquisition.phase == Phase::Well;
    let since = acquisitions.iter().filter(well).map(|acquisition| acquisition.asked).min();
    let since = since.unwrap_or(Instant::from_nanos(u64::MAX));
    let of_it = |acquisition: &&Acquisition| match (&acquisition.got, &acquisition.not) {
        (Some(_), _) => {
            acquisition.left.as_ref().map_or(acquisition.ended(), |(at, _)| *at) >= since
        }
        (None, Some((at, ..))) => *at >= since,
        (None, None) => acquisition.is_open(),
    };
    history(acquisitions.iter().filter(of_it).flat_map(|acquisition| {
        let mut events = acquisition.events();
        if acquisition.got.is_none_or(|(at, _)| at > since) {
            events[0].invoked = events[0].invoked.max(since);
        }
        if acquisition.got.is_some() {
            let freed = (acquisition.ended(), Reply::Acked { token: None, until: None });
            match events.iter_mut().find(|event| event.op == Op::Release) {
                Some(release) => release.answer = release.answer.or(Some(freed)),
                None => {
                    events.push(acquisition.event(Op::Release, acquisition.ended(), Some(freed)))
                }
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
mod tests {
    use super::*;
    use crate::line::short;
    use dlock_testkit::history::{exclusion, tokens, wake_up};

    fn acquisitions(logs: &[(&str, Option<u64>)]) -> Vec<Acquisition> {
        let logs = || logs.iter().enumerate();
        let lines: Vec<Line> = logs().flat_map(|(n, (text, _))| short::lines(n, text)).collect();
        let killed = logs().filter_map(|(n, (_, at))| Some((n, Instant::from_nanos((*at)?))));
        super::acquisitions(&lines, &killed.collect()).unwrap()
    }

    const LATER: &str = "1 ask 0 storm x 2 a\n1 got 50 9 90\n1 let 60\n1 left 61 released\n";

    #[test]
    fn a_hold_ends_with_the_first_of_its_ends() {
        for (end, at) in [
            ("1 let 30\n", 30),
            ("1 lost 20 revoked\n1 let 30\n", 20),
            ("1 keep 70\n", 70),
            ("1 keep 35\n", 40),
        ] {
            let text = format!("1 ask 0 storm x 1 a\n1 got 5 7 40\n{end}");
            let acquisition = &acquisitions(&[(&text, None)])[0];
            assert_eq!(acquisition.ended().as_nanos(), at, "{end}");
        }
    }

    #[test]
    fn a_number_that_may_be_another_processs_is_refused() {
        let read =
            |process, text| super::acquisitions(&short::lines(process, text), &BTreeMap::new());
        assert!(read(99_999, "999999999 ask 999999 storm x 1 a\n").is_ok());
        assert!(read(100_000, "1 ask 1 storm x 1 a\n").is_err());
        for line in ["1000000000 ask 0 storm x 1 a\n", "1 ask 1000000 storm x 1 a\n"] {
            assert!(read(1, line).is_err(), "{line}");
        }
        let line = format!("{} ask {} storm x 1 a\n", u64::MAX, usize::MAX);
        assert!(read(1, &line).is_err());
    }

    #[test]
    fn a_line_that_was_cut_off_is_left_out_and_no_other() {
        let line = &short::lines(0, "1 ask 0 storm x 1 a\n")[0];
        let half = &line.to_string()[..30];
        assert_eq!(read(&format!("{line}\n{half}")).unwrap().len(), 1);
        assert!(read(&format!("{half}\n{line}\n")).is_err());
        assert!(super::acquisitions(&short::lines(0, "1 let 5\n"), &BTreeMap::new()).is_err());
    }

    #[test]
    fn an_aborted_task_holds_no_more_and_later_ones_do() {
        let first = "1 ask 0 storm x 1 a\n1 got 5 7 80\n- abort 45 1\n";
        let both = acquisitions(&[(first, None), (LATER, None)]);
        assert!(exclusion::check(&client_holds(&both)).is_ok());
        assert!(!acquisitions(&[("1 ask 0 storm x 1 a\n- abort 45 1\n", None)])[0].is_open());
        for next in
            ["1 ask 1 storm x 1 a\n1 got 5 7 80\n- abort 45 1\n", &first.replace("45", "55")]
        {
            let both = acquisitions(&[(next, None), (LATER, None)]);
            assert!(exclusion::check(&client_holds(&both)).is_err(), "{next}");
        }
    }

    #[test]
    fn an_excuse_ends_only_the_holds_that_it_covers() {
        let first = "1 ask 0 storm x 1 a\n1 got 5 7 80\n1 let 70\n";
        let both = acquisitions(&[(first, None), (LATER, None)]);
        let is_right = |at, until| {
            let at = Instant::from_nanos(at);
            let excuse = Excuse::of_any(at, Instant::from_nanos(until));
            exclusion::check(&excused_holds(&both, &[excuse])).is_ok()
        };
        assert!(is_right(40, 45));
        assert!(is_right(4, 7), "it began within the fault");
        assert!(!is_right(55, 58), "they overlapped before");
        assert!(!is_right(1, 4), "it began after the fault");
    }

    #[test]
    fn an_excused_hold_ends_within_a_lease() {
        let first = "1 ask 0 storm x 1 a\n1 got 5 7 80\n1 let 70\n";
        let both = acquisitions(&[(first, None), (LATER, None)]);
        let (at, excused_until) = (Instant::from_nanos(40), Instant::from_nanos(45));
        let excuses = [Excuse::of_any(at, excused_until)];
        let is_right = |lease| {
            let lease = Duration::from_nanos(lease);
            exclusion::check(&excused_parts(&both, &excuses, lease)).is_ok()
        };
        assert!(is_right(25), "it ends in time");
        assert!(!is_right(5), "it goes on beside the next one");
    }

    #[test]
    fn an_excuse_covers_one_lock_its_tokens_and_its_lease() {
        let first = "1 ask 0 storm x 1 a\n1 got 5 7 80\n1 let 70\n";
        let both = acquisitions(&[(first, None), (LATER, None)]);
        let is_right = |name: &str, tokens, until| {
            let (name, until) = (name.to_owned(), Instant::from_nanos(until));
            let lost = Some(vec![LostGrant { name, tokens, until }]);
            let at = Instant::from_nanos(40);
            let excuse = Excuse { lost, ..Excuse::of_any(at, at) };
            exclusion::check(&excused_parts(&both, &[excuse], Duration::ZERO)).is_ok()
        };
        assert!(is_right("a", (6, 7), 80));
        assert!(!is_right("a", (6, 7), 45), "its lease ended before");
        assert!(!is_right("b", (6, 7), 80) && !is_right("a", (8, 8), 80), "it was not lost");
    }

    #[test]
    fn an_overlap_of_two_processes_is_found() {
        let first = "1 ask 0 storm x 1 a\n1 got 5 7 80\n1 let 55\n";
        assert!(
            exclusion::check(&client_holds(&acquisitions(&[(first, None), (LATER, None)])))
                .is_err()
        );
        let first = first.replace("let 55", "let 45");
        assert!(
            exclusion::check(&client_holds(&acquisitions(&[(&first, None), (LATER, None)])))
                .is_ok()
        );
    }

    #[test]
    fn a_killed_process_holds_no_more_and_keeps_its_token() {
        let first = "1 ask 0 storm x 1 a\n1 got 5 10 80\n1 ke";
        let dead = acquisitions(&[(first, Some(45)), (LATER, None)]);
        assert!(exclusion::check(&client_holds(&dead)).is_ok());
        assert!(tokens::check(&grants(&dead)).is_ok());
        let asked_after = LATER.replace("storm x 2", "storm x 20");
        let dead = acquisitions(&[(first, Some(45)), (&asked_after, None)]);
        assert!(tokens::check(&grants(&dead)).is_err(), "9 after 10");
        let alive = acquisitions(&[(first, Some(55)), (LATER, None)]);
        assert!(exclusion::check(&client_holds(&alive)).is_err());
    }

    #[test]
    fn a_grant_reported_after_its_deadline_is_no_hold() {
        let late = "1 ask 0 storm x 1 a\n1 got 55 5 40\n1 let 58\n";
        let both = acquisitions(&[(late, None), (LATER, None)]);
        assert!(exclusion::check(&client_holds(&both)).is_ok());
        assert_eq!((client_holds(&both).holds().len(), grants(&both).holds().len()), (1, 2));
    }

    #[test]
    fn a_long_wait_counts_from_the_end_of_the_faults() {
        let patient = "1 ask 0 storm x 1 a\n1 got 7005 7 7090\n1 let 7010\n1 left 7011 released\n";
        let well = "1 ask 0 well x 7000 a\n1 got 7020 9 7090\n1 let 7030\n1 left 7031 released\n";
        let all = without_faults(&acquisitions(&[(patient, None), (well, None)]));
        let within = |nanos| wake_up::check(&all, std::time::Duration::from_nanos(nanos));
        assert!(within(10).is_ok() && within(4).is_err());
    }

    #[test]
    fn a_store_that_forgets_whom_it_promised_is_noticed() {
        let acquisition = |end: &str| {
            let text = format!("1 ask 0 storm x 1 a\n1 got 5 7 40\n{end}");
            acquisitions(&[(&text, None)]).remove(0)
        };
        assert!(acquisition("1 lost 30 revoked\n").was_revoked());
        assert!(!acquisition("1 lost 41 expired\n").was_revoked());
        assert!(acquisition("1 let 30\n1 left 35 gone\n").was_gone());
        assert!(!acquisition("1 let 30\n1 left 45 gone\n").was_gone(), "its lease may have ended");
    }
}
