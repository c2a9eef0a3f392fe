//! **Mutual exclusion**: while one client believes that it holds the lock alone, no other client
//! does.

use dlock_core::Mode;

use super::{History, Latest, Span, Violation};

/// Checks that no two clients held the lock alone at the same time.
///
/// # Errors
/// The first two acquisitions that overlap.
pub fn check(history: &History) -> Result<(), Violation> {
    match overlaps(history).next() {
        Some((span, other)) => {
            Err(Violation::new(format!("two at once: {span:?} and {other:?}")).seen_at(other.from))
        }
        None => Ok(()),
    }
}

/// Returns pairs of exclusive spans that overlap: the earlier span, and the span that began during
/// it. Each later span occurs once.
pub fn overlaps(history: &History) -> impl Iterator<Item = (Span, Span)> + use<> {
    let mut spans = history.spans();
    spans.retain(|span| span.mode == Mode::Exclusive);
    let mut seen = Latest::default();
    spans.into_iter().filter_map(move |span| {
        let before = seen.met_by(&span);
        seen.see(span);
        before.map(|before| (before, span))
    })
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
    fn an_overlap_with_one_that_began_long_before_is_found() {
        let wrong = history([
            hold(1, X, 1, [0, 1, 90]),
            hold(2, X, 2, [0, 91, 92]),
            hold(3, X, 3, [0, 93, 99]),
            hold(4, X, 4, [0, 94, 95]),
            hold(5, X, 5, [0, 96, 97]),
        ]);
        assert_eq!(overlaps(&wrong).count(), 2);
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
    fn a_notified_loss_ends_the_hold() {
        let mut lost = hold(1, X, 1, [0, 1, 70]);
        let mut told = lost[1].clone();
        (told.op, told.invoked) = (Op::Lose, at(20));
        lost.push(told);
        assert_eq!(check(&history([lost, hold(2, X, 2, [0, 21, 60])])), Ok(()));
    }
}
