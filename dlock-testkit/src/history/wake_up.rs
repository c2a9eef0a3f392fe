//! **No lost wake-up**: if the lock becomes free while claims wait, one of them is granted in time.

use std::time::Duration;

use dlock_core::Instant;

use super::{History, Op, Violation};

/// Checks that no claim waited longer than `bound` for a free lock. Use it for locks with one
/// holder at a time.
///
/// # Errors
/// The first acquire that waited too long.
pub fn check(history: &History, bound: Duration) -> Result<(), Violation> {
    let end = history.ended.unwrap_or(Instant::from_nanos(0));
    let mut holds = history.holds();
    holds.sort_by_key(|hold| hold.granted);
    // `freed[n]` is the time at which the first `n` holds had been released, or `None` if one of
    // them never was.
    let mut freed = vec![Some(Instant::from_nanos(0))];
    for hold in &holds {
        let so_far = freed.last().copied().flatten();
        freed.push(so_far.zip(hold.freed).map(|(a, b)| a.max(b)));
    }
    for event in history.events.iter().filter(|event| matches!(event.op, Op::Acquire(_))) {
        let answered = event.answer.map_or(end, |(at, _)| at);
        // The lock was certainly free since the last release before the answer, unless another
        // client held it later.
        let before = holds.partition_point(|hold| hold.granted < answered);
        let Some(free_since) = freed[before] else { continue };
        let free_since = free_since.max(event.invoked);
        let waited = answered.since(free_since);
        if waited > bound {
            let text = format!("the lock was free for {waited:?}: {event:?}");
            return Err(Violation::new(text).seen_at(answered));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use dlock_core::Mode;

    use super::{super::build::*, *};

    const X: Mode = Mode::Exclusive;
    const BOUND: Duration = Duration::from_millis(10);

    #[test]
    fn a_prompt_hand_off_is_right() {
        let right = history([hold(1, X, 1, [0, 1, 50]), hold(2, X, 2, [2, 55, 60])]);
        assert_eq!(check(&right, BOUND), Ok(()));
    }

    #[test]
    fn a_late_one_is_wrong() {
        let wrong = history([hold(1, X, 1, [0, 1, 50]), hold(2, X, 2, [2, 65, 70])]);
        assert!(check(&wrong, BOUND).is_err());
    }

    #[test]
    fn a_waiter_that_never_learns_is_wrong() {
        let mut forgotten = hold(2, X, 2, [2, 3, 4]);
        forgotten.pop();
        forgotten[0].answer = None;
        assert!(check(&history([hold(1, X, 1, [0, 1, 50]), forgotten]), BOUND).is_err());
    }

    #[test]
    fn waiting_for_a_holder_is_right_however_long() {
        let right = history([hold(1, X, 1, [0, 1, 5_000]), hold(2, X, 2, [2, 5_005, 5_006])]);
        assert_eq!(check(&right, BOUND), Ok(()));
    }
}
