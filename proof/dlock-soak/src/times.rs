//! Sets of times in which a condition held.

use std::time::Duration;

use dlock_core::Instant;

/// The times in which a condition held, such as that a process did not run. They are sorted and do
/// not overlap.
#[derive(Clone, Debug, Default)]
pub(super) struct Times(Vec<(Instant, Instant)>);

impl Times {
    /// Returns the union of these times.
    pub(super) fn of(mut all: Vec<(Instant, Instant)>) -> Self {
        all.sort_unstable();
        let mut apart: Vec<(Instant, Instant)> = Vec::new();
        for (from, to) in all {
            match apart.last_mut() {
                Some(last) if from <= last.1 => last.1 = last.1.max(to),
                _ => apart.push((from, to)),
            }
        }
        Self(apart)
    }

    /// Returns the beginning of the time that contains this moment, or that ended at most `little`
    /// before it.
    pub(super) fn since(&self, at: Instant, little: Duration) -> Option<Instant> {
        let next = self.0.partition_point(|(from, _)| *from <= at);
        let (from, to) = self.0[..next].last()?;
        (at <= to.saturating_add(little)).then_some(*from)
    }

    /// Whether the condition held at any moment between these.
    pub(super) fn meet(&self, from: Instant, to: Instant) -> bool {
        let next = self.0.partition_point(|(_, end)| *end < from);
        self.0.get(next).is_some_and(|(begin, _)| *begin <= to)
    }

    /// Returns the times in which the condition did not hold.
    pub(super) fn rest(&self) -> impl Iterator<Item = (Instant, Instant)> {
        let ends = self.0.iter().map(|(_, to)| *to);
        let froms = self.0.iter().map(|(from, _)| *from);
        let (first, last) = (Instant::from_nanos(0), Instant::from_nanos(u64::MAX));
        std::iter::once(first).chain(ends).zip(froms.chain(std::iter::once(last)))
    }

    /// Returns the total time between these moments in which the condition did not hold.
    pub(super) fn without(&self, from: Instant, to: Instant) -> Duration {
        let next = self.0.partition_point(|(_, end)| *end <= from);
        let within = self.0[next..].iter().take_while(|(begin, _)| *begin < to);
        let so: Duration = within.map(|&(a, b)| b.min(to).since(a.max(from))).sum();
        to.since(from).saturating_sub(so)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(nanos: u64) -> Instant {
        Instant::from_nanos(nanos)
    }

    #[test]
    fn adjacent_times_are_merged() {
        let times = Times::of([(7, 9), (1, 3), (3, 5), (2, 3)].map(|(a, b)| (at(a), at(b))).into());
        assert_eq!(times.0.len(), 2);
        let since = |nanos, little| times.since(at(nanos), Duration::from_nanos(little));
        assert_eq!((since(4, 0), since(6, 1)), (Some(at(1)), Some(at(1))));
        assert_eq!((since(6, 0), since(0, 5)), (None, None));
        assert!(times.meet(at(0), at(1)) && times.meet(at(6), at(20)) && times.meet(at(4), at(4)));
        assert!(!times.meet(at(6), at(6)) && !times.meet(at(10), at(20)));
        assert_eq!(times.without(at(0), at(20)), Duration::from_nanos(14));
        assert_eq!(times.without(at(2), at(8)), Duration::from_nanos(2));
        assert_eq!(times.without(at(2), at(4)), Duration::ZERO);
        let rest: Vec<_> = times.rest().map(|(a, b)| (a.as_nanos(), b.as_nanos())).collect();
        assert_eq!(rest, [(0, 1), (5, 7), (9, u64::MAX)]);
    }
}
