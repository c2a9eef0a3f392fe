//! Checks of the checkers: nothing is taken for a proof, and what is wrong is found.

use dlock_core::{FencingToken, Instant, Mode};
use dlock_testkit::history::{Event, History, Op, Reply, at_least, exclusion};
use libtest_mimic::Failed;

pub(crate) type Control = fn() -> Result<(), Failed>;

pub(crate) const ALL: [(&str, Control); 2] =
    [("a_history_of_nothing_proves_nothing", nothing), ("two_at_once_are_found", two_at_once)];

fn nothing() -> Result<(), Failed> {
    demand(at_least(&History::default(), 1).is_err(), "nothing counts as a grant")?;
    demand(at_least(&history([1, 3]), 2).is_ok(), "two grants are not two")
}

fn two_at_once() -> Result<(), Failed> {
    demand(exclusion::check(&history([1, 2])).is_err(), "two at once pass")?;
    demand(exclusion::check(&history([1, 3])).is_ok(), "one after the other does not pass")
}

fn demand(is: bool, otherwise: &str) -> Result<(), Failed> {
    if is { Ok(()) } else { Err(otherwise.into()) }
}

/// Two holds that begin then, of a duration of two.
fn history(begin: [u64; 2]) -> History {
    let hold = |(actor, from): (usize, u64)| {
        let [from, to] = [from, from + 2].map(Instant::from_nanos);
        let token = FencingToken::new(from.as_nanos()).ok();
        Event {
            actor,
            hold: from.as_nanos(),
            op: Op::Acquire(Mode::Exclusive),
            invoked: from,
            answer: Some((from, Reply::Acked { token, until: Some(to) })),
        }
    };
    let events = begin.into_iter().enumerate().map(hold).collect();
    History { events, ended: Some(Instant::from_nanos(9)) }
}
