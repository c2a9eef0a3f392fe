//! From the lines of all processes to what was believed when, and so to histories.

use std::collections::BTreeMap;

use dlock_core::{FencingToken, Instant, Mode};

use super::line::{GONE, Line, Phase, RELEASED, REVOKED, What};
use crate::{
    Stop,
    history::{Event, History, Op, Reply},
};

/// One acquisition of one name, from the asking to the end of the belief.
#[derive(Clone, Debug)]
pub(crate) struct Tale {
    /// Task and process.
    pub(crate) actor: usize,
    pub(crate) hold: u64,
    pub(crate) name: String,
    pub(crate) mode: Mode,
    pub(crate) phase: Phase,
    pub(crate) asked: Instant,
    /// When it was known, and by which token.
    pub(crate) got: Option<(Instant, FencingToken)>,
    /// The latest deadline that the guard named.
    pub(crate) until: Instant,
    pub(crate) shared: Option<Instant>,
    /// When it began to be let go.
    pub(crate) let_go: Option<Instant>,
    /// When and how that was answered.
    pub(crate) left: Option<(Instant, String)>,
    pub(crate) lost: Option<(Instant, String)>,
    /// When the attempt came to nothing, how, and what was said.
    pub(crate) not: Option<(Instant, String, String)>,
    /// When its process was killed.
    pub(crate) killed: Option<Instant>,
}

/// How many tasks and holds a process can have, so that the numbers of two do not meet.
const TASKS: usize = 1000;
const HOLDS: u64 = 1_000_000_000;

/// Reads the log of one process. A line that its death cut off is not for anybody.
pub(crate) fn read(text: &str, process: usize, killed: Option<Instant>) -> Result<Vec<Tale>, Stop> {
    let mut tales: BTreeMap<u64, Tale> = BTreeMap::new();
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    for line in whole.lines() {
        let Line { hold, what } = line.parse()?;
        if let What::Ask { task, phase, mode, at, name } = what {
            if task >= TASKS || hold >= HOLDS {
                return Err(Stop::failed(format!("a number is too large: {line}")));
            }
            let (actor, own) = (process * TASKS + task, hold);
            let hold = process as u64 * HOLDS + own;
            tales.insert(
                own,
                Tale {
                    actor,
                    hold,
                    name,
                    mode,
                    phase,
                    asked: at,
                    got: None,
                    until: Instant::from_nanos(0),
                    shared: None,
                    let_go: None,
                    left: None,
                    lost: None,
                    not: None,
                    killed,
                },
            );
            continue;
        }
        let unasked = || Stop::failed(format!("nobody asked for this: {line}"));
        tales.get_mut(&hold).ok_or_else(unasked)?.add(what);
    }
    Ok(tales.into_values().collect())
}

impl Tale {
    fn add(&mut self, what: What) {
        match what {
            What::Got { at, token, until } => {
                self.got = Some((at, token));
                self.until = until;
            }
            What::Keep { until } => self.until = self.until.max(until),
            What::Share { at } => self.shared = Some(at),
            What::Let { at } => self.let_go = Some(at),
            What::Left { at, how } => self.left = Some((at, how)),
            What::Lost { at, how } => self.lost = Some((at, how)),
            What::Not { at, how, text } => self.not = Some((at, how, text)),
            What::Ask { .. } => {}
        }
    }

    /// When the belief ended.
    pub(crate) fn ended(&self) -> Instant {
        let lost = self.lost.as_ref().map(|(at, _)| *at);
        let all = [self.let_go, lost, self.killed];
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
        self.lost.as_ref().is_some_and(|(at, how)| how == REVOKED && *at < self.until)
    }

    /// Whether its release was told that it had been lost before, at a time when it was to be
    /// believed.
    pub(super) fn was_gone(&self) -> bool {
        self.left.as_ref().is_some_and(|(at, how)| how == GONE && *at < self.until)
    }

    /// Whether it is not known how the attempt ended although its process lived on.
    pub(super) fn is_open(&self) -> bool {
        self.got.is_none() && self.not.is_none() && self.killed.is_none()
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

/// What was granted and believed in: for the checkers of exclusion, readers and permits.
pub(super) fn beliefs(tales: &[Tale]) -> History {
    history(tales.iter().filter(|tale| tale.was_believed()).flat_map(Tale::events))
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
    History { events, ended: Some(crate::context::now()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{exclusion, tokens, wake_up};

    fn tales(logs: &[(&str, Option<u64>)]) -> Vec<Tale> {
        let read = |(process, (text, killed)): (usize, &(&str, Option<u64>))| {
            read(text, process, killed.map(Instant::from_nanos)).unwrap()
        };
        logs.iter().enumerate().flat_map(read).collect()
    }

    const LATER: &str = "1 ask 0 storm x 2 a\n1 got 50 9 90\n1 let 60\n1 left 61 released\n";

    #[test]
    fn belief_ends_with_the_first_of_its_ends() {
        for (end, at) in [
            ("1 let 30\n", 30),
            ("1 lost 20 revoked\n1 let 30\n", 20),
            ("1 keep 70\n", 70),
            ("1 keep 35\n", 40),
        ] {
            let text = format!("1 ask 0 storm x 1 a\n1 got 5 7 40\n{end}");
            let tale = &tales(&[(&text, None)])[0];
            assert_eq!(tale.ended().as_nanos(), at, "{end}");
        }
    }

    #[test]
    fn a_number_that_may_be_another_processs_is_refused() {
        for line in ["1000000000 ask 0 storm x 1 a\n", "1 ask 1000 storm x 1 a\n"] {
            assert!(read(line, 1, None).is_err(), "{line}");
        }
        let line = format!("{} ask {} storm x 1 a\n", u64::MAX, usize::MAX);
        assert!(read(&line, 1, None).is_err());
    }

    #[test]
    fn an_overlap_of_two_processes_is_found() {
        let first = "1 ask 0 storm x 1 a\n1 got 5 7 80\n1 let 55\n";
        assert!(exclusion::check(&beliefs(&tales(&[(first, None), (LATER, None)]))).is_err());
        let first = first.replace("let 55", "let 45");
        assert!(exclusion::check(&beliefs(&tales(&[(&first, None), (LATER, None)]))).is_ok());
    }

    #[test]
    fn who_is_killed_believes_no_more_and_keeps_its_token() {
        let first = "1 ask 0 storm x 1 a\n1 got 5 10 80\n1 ke";
        let dead = tales(&[(first, Some(45)), (LATER, None)]);
        assert!(exclusion::check(&beliefs(&dead)).is_ok());
        assert!(tokens::check(&grants(&dead)).is_ok());
        let asked_after = LATER.replace("storm x 2", "storm x 20");
        let dead = tales(&[(first, Some(45)), (&asked_after, None)]);
        assert!(tokens::check(&grants(&dead)).is_err(), "9 after 10");
        let alive = tales(&[(first, Some(55)), (LATER, None)]);
        assert!(exclusion::check(&beliefs(&alive)).is_err());
    }

    #[test]
    fn a_grant_that_is_learned_of_past_its_deadline_is_not_believed() {
        let late = "1 ask 0 storm x 1 a\n1 got 55 5 40\n1 let 58\n";
        let both = tales(&[(late, None), (LATER, None)]);
        assert!(exclusion::check(&beliefs(&both)).is_ok());
        assert_eq!((beliefs(&both).holds().len(), grants(&both).holds().len()), (1, 2));
    }

    #[test]
    fn who_has_waited_for_long_counts_from_the_begin_of_the_peace() {
        let patient = "1 ask 0 storm x 1 a\n1 got 7005 7 7090\n1 let 7010\n1 left 7011 released\n";
        let well = "1 ask 0 well x 7000 a\n1 got 7020 9 7090\n1 let 7030\n1 left 7031 released\n";
        let all = peace(&tales(&[(patient, None), (well, None)]));
        let within = |nanos| wake_up::check(&all, std::time::Duration::from_nanos(nanos));
        assert!(within(10).is_ok() && within(4).is_err());
    }

    #[test]
    fn a_store_that_forgets_whom_it_promised_is_noticed() {
        let tale = |end: &str| {
            let text = format!("1 ask 0 storm x 1 a\n1 got 5 7 40\n{end}");
            tales(&[(&text, None)]).remove(0)
        };
        assert!(tale("1 lost 30 revoked\n").was_revoked());
        assert!(!tale("1 lost 41 expired\n").was_revoked());
        assert!(tale("1 let 30\n1 left 35 gone\n").was_gone());
        assert!(!tale("1 let 30\n1 left 45 gone\n").was_gone(), "its lease may have ended");
    }
}
