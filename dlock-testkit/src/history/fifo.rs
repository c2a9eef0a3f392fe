//! **First come, first served**: a claim that was seen in the queue before another claim was
//! requested is granted before it.

use dlock_core::Instant;

use super::{History, Hold, Violation};

/// Checks that no claim overtook another.
///
/// # Errors
/// The first claim that overtook another, and the other.
pub fn check(history: &History) -> Result<(), Violation> {
    // The loop runs from the largest token down. `seen` is the claim with a larger token that was
    // seen in the queue first.
    let mut seen: Option<(Instant, Hold)> = None;
    for first in history.holds().into_iter().rev() {
        if let Some((arrived, later)) = &seen
            && *arrived < first.asked
        {
            return Err(Violation::new(format!("{first:?} overtook {later:?}")));
        }
        if let Some(arrived) = first.arrived
            && seen.is_none_or(|(earliest, _)| arrived < earliest)
        {
            seen = Some((arrived, first));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use dlock_core::Mode;

    use super::{super::build::*, *};
    use crate::history::{Event, Op};

    fn seen(actor: usize, token: u64, arrived: u64, times: [u64; 3]) -> Vec<Event> {
        let mut events = hold(actor, Mode::Exclusive, token, times);
        let mut arrive = events[0].clone();
        (arrive.op, arrive.invoked) = (Op::Arrive, at(arrived));
        events.push(arrive);
        events
    }

    #[test]
    fn in_line_is_right() {
        let right = history([seen(1, 1, 2, [0, 10, 11]), seen(2, 2, 5, [3, 12, 13])]);
        assert_eq!(check(&right), Ok(()));
    }

    #[test]
    fn overtaking_is_wrong() {
        let wrong = history([seen(1, 2, 2, [0, 12, 13]), seen(2, 1, 5, [3, 10, 11])]);
        assert!(check(&wrong).is_err());
    }

    #[test]
    fn an_unseen_waiter_may_have_come_later() {
        let right = history([seen(1, 2, 4, [0, 12, 13]), seen(2, 1, 5, [3, 10, 11])]);
        assert_eq!(check(&right), Ok(()));
    }
}
