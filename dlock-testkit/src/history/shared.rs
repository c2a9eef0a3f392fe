//! **Shared xor exclusive**: readers share the lock with each other and never with a writer.

use std::{cmp::Reverse, collections::BinaryHeap};

use dlock_core::{Instant, Mode};

use super::{History, Latest, Span, Violation};

/// Checks that no reader held the lock at the same time as a writer.
///
/// # Errors
/// The first reader and writer that did.
pub fn check(history: &History) -> Result<(), Violation> {
    match overlaps(history).next() {
        Some((span, other)) => Err(Violation::new(format!("{other:?} together with {span:?}"))
            .seen_at(span.from.max(other.from))),
        None => Ok(()),
    }
}

/// Returns pairs of spans of different modes that overlap: the earlier span, and the span that
/// began during it. Each later span occurs once.
pub fn overlaps(history: &History) -> impl Iterator<Item = (Span, Span)> + use<> {
    let (mut readers, mut writers) = (Latest::default(), Latest::default());
    history.spans().into_iter().filter_map(move |span| {
        let (own, others) = match span.mode {
            Mode::Shared => (&mut readers, &writers),
            Mode::Exclusive => (&mut writers, &readers),
            _ => return None,
        };
        own.see(span);
        others.met_by(&span).map(|before| (before, span))
    })
}

/// Returns the largest number of readers that held the lock at one time.
pub fn most_readers(history: &History) -> usize {
    let mut ends: BinaryHeap<Reverse<Instant>> = BinaryHeap::new();
    let mut most = 0;
    let readers = |span: &Span| span.mode == Mode::Shared && span.from < span.to;
    for span in history.spans().into_iter().filter(readers) {
        while ends.peek().is_some_and(|Reverse(to)| *to <= span.from) {
            ends.pop();
        }
        ends.push(Reverse(span.to));
        most = most.max(ends.len());
    }
    most
}

#[cfg(test)]
mod tests {
    use super::{super::build::*, *};
    use crate::history::Op;

    #[test]
    fn readers_share() {
        let right = history([
            hold(1, Mode::Shared, 1, [0, 1, 6]),
            hold(2, Mode::Shared, 2, [0, 5, 9]),
            hold(3, Mode::Exclusive, 3, [0, 10, 12]),
        ]);
        assert_eq!(check(&right), Ok(()));
        assert_eq!(most_readers(&right), 2);
    }

    #[test]
    fn a_reader_beside_a_writer_is_wrong() {
        let wrong =
            history([hold(1, Mode::Shared, 1, [0, 1, 6]), hold(3, Mode::Exclusive, 3, [0, 5, 12])]);
        assert!(check(&wrong).is_err());
    }

    #[test]
    fn a_downgraded_writer_is_a_reader() {
        let mut writer = hold(1, Mode::Exclusive, 1, [0, 1, 20]);
        let mut turn = writer[1].clone();
        (turn.op, turn.invoked) = (Op::Downgrade, at(10));
        writer.push(turn);
        let reader = |granted| hold(2, Mode::Shared, 2, [0, granted, 30]);
        assert_eq!(check(&history([writer.clone(), reader(11)])), Ok(()));
        assert!(check(&history([writer, reader(9)])).is_err());
    }
}
