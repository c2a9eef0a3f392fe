//! **Permits**: the permits in use never exceed the capacity.

use std::{cmp::Reverse, collections::BinaryHeap};

use dlock_core::{Instant, Mode};

use super::{History, Span, Violation};

/// Checks that at most `all` permits were in use at any time.
///
/// # Errors
/// The first acquisition that exceeded them.
pub fn check(history: &History, all: u32) -> Result<(), Violation> {
    match excesses(history, all).next() {
        Some((used, span)) => {
            let text = format!("{used} of {all} permits in use at {span:?}");
            Err(Violation::new(text).seen_at(span.from))
        }
        None => Ok(()),
    }
}

/// Returns each span at the beginning of which more than `all` permits were in use, with the
/// number of permits in use.
pub fn excesses(history: &History, all: u32) -> impl Iterator<Item = (u64, Span)> + use<> {
    let mut ends: BinaryHeap<Reverse<(Instant, u64)>> = BinaryHeap::new();
    let mut used: u64 = 0;
    // The sum can only grow at the beginning of a span.
    history.spans().into_iter().filter(|span| span.from < span.to).filter_map(move |span| {
        while let Some(&Reverse((to, weight))) = ends.peek()
            && to <= span.from
        {
            used -= weight;
            ends.pop();
        }
        let weight = u64::from(weight(span.mode));
        used += weight;
        ends.push(Reverse((span.to, weight)));
        (used > u64::from(all)).then_some((used, span))
    })
}

fn weight(mode: Mode) -> u32 {
    match mode {
        Mode::Permits { n, .. } => n,
        _ => u32::MAX,
    }
}

#[cfg(test)]
mod tests {
    use super::{super::build::*, *};

    fn n(n: u32) -> Mode {
        Mode::Permits { n, of: 3 }
    }

    #[test]
    fn as_many_as_there_are_is_right() {
        let right = history([
            hold(1, n(1), 1, [0, 1, 9]),
            hold(2, n(2), 2, [0, 2, 5]),
            hold(3, n(2), 3, [0, 5, 9]),
        ]);
        assert_eq!(check(&right, 3), Ok(()));
    }

    #[test]
    fn weights_count() {
        let wrong = history([hold(1, n(2), 1, [0, 1, 9]), hold(2, n(2), 2, [0, 2, 5])]);
        assert!(check(&wrong, 3).is_err());
    }
}
