//! **Mutual exclusion**: while one client believes to hold the lock alone, no other does.

use dlock_core::Mode;

use super::{History, Violation};

/// Checks that no two clients held the lock alone at one time.
///
/// # Errors
/// The first two that did.
pub fn check(history: &History) -> Result<(), Violation> {
    let mut spans = history.spans();
    spans.retain(|span| span.mode == Mode::Exclusive);
    for (i, span) in spans.iter().enumerate() {
        let later = spans[i + 1..].iter().take_while(|other| other.from < span.to);
        if let Some(other) = later.into_iter().find(|other| span.meets(other)) {
            return Err(Violation::new(format!("two at once: {span:?} and {other:?}")));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{super::build::*, *};
    use crate::history::{Op, Reply};

    const X: Mode = Mode::Exclusive;

    #[test]
    fn one_after_the_other_is_right() {
        let right = history([hold(1, X, 1, [0, 1, 5]), hold(2, X, 2, [0, 5, 9])]);
        assert_eq!(check(&right), Ok(()));
    }

    #[test]
    fn overlap_is_wrong() {
        let wrong = history([hold(1, X, 1, [0, 1, 6]), hold(2, X, 2, [0, 5, 9])]);
        assert!(check(&wrong).is_err());
    }

    #[test]
    fn a_hold_that_never_ends_overlaps_all_later_ones() {
        let mut endless = hold(1, X, 1, [0, 1, 2]);
        endless.pop();
        assert!(check(&history([endless, hold(2, X, 2, [50, 51, 52])])).is_err());
    }

    #[test]
    fn a_lease_that_ended_does_not() {
        let mut lapsed = hold(1, X, 1, [0, 1, 70]);
        if let Some((_, Reply::Acked { until, .. })) = &mut lapsed[0].answer {
            *until = Some(at(40));
        }
        assert_eq!(check(&history([lapsed.clone(), hold(2, X, 2, [30, 41, 60])])), Ok(()));
        assert!(check(&history([lapsed, hold(2, X, 2, [30, 39, 60])])).is_err());
    }

    #[test]
    fn who_is_told_of_the_loss_holds_no_more() {
        let mut lost = hold(1, X, 1, [0, 1, 70]);
        let mut told = lost[1].clone();
        (told.op, told.invoked) = (Op::Lose, at(20));
        lost.push(told);
        assert_eq!(check(&history([lost, hold(2, X, 2, [0, 21, 60])])), Ok(()));
    }
}
