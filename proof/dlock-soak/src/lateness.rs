//! **Lateness**: a holder is notified that its lease has expired at its local deadline, or soon
//! after.
//!
//! A process that did not run cannot notify its tasks: only the time in which its timers ran
//! counts.

use std::{collections::BTreeMap, time::Duration};

use dlock_core::Instant;

use super::{history::Acquisition, line::EXPIRED, times::Times};

/// The largest allowed 99th percentile of the delays.
pub(super) const P99: Duration = Duration::from_millis(20);
/// The largest allowed delay of a single notification.
pub(super) const MOST: Duration = Duration::from_millis(100);
/// The smallest number of notifications for which the 99th percentile is checked.
const ENOUGH: usize = 100;

/// The delays with which holders were notified that their leases had expired.
#[derive(Clone, Debug, Default)]
pub struct Lateness {
    notified: Vec<(Instant, Duration)>,
    p99: Duration,
    most: Duration,
}

impl Lateness {
    /// Computes the delays of these acquisitions; `idle` has the times in which each process did
    /// not run.
    pub(super) fn of<'a>(
        acquisitions: impl Iterator<Item = &'a Acquisition>,
        idle: &BTreeMap<usize, Times>,
    ) -> Self {
        let ran = Times::default();
        let mut notified: Vec<(Instant, Duration)> = acquisitions
            .filter_map(|acquisition| {
                let (at, how) = acquisition.lost.as_ref()?;
                // A holder that was busy did not check earlier.
                let due = acquisition.until.max(acquisition.looked);
                let idle = idle.get(&acquisition.process()).unwrap_or(&ran);
                (how == EXPIRED).then(|| (*at, idle.without(due, *at)))
            })
            .collect();
        notified.sort_unstable();
        let mut sorted: Vec<Duration> = notified.iter().map(|(_, late)| *late).collect();
        sorted.sort_unstable();
        let rank = (sorted.len() * 99).div_ceil(100);
        let p99 = rank.checked_sub(1).map_or(Duration::ZERO, |last| sorted[last]);
        Self { notified, p99, most: sorted.last().copied().unwrap_or_default() }
    }

    /// Returns the time of each notification and its delay after the local deadline.
    pub fn notified(&self) -> &[(Instant, Duration)] {
        &self.notified
    }

    /// Returns the 99th percentile of the delays.
    pub fn p99(&self) -> Duration {
        self.p99
    }

    /// Returns the largest delay.
    pub fn most(&self) -> Duration {
        self.most
    }

    /// Checks the delays.
    ///
    /// # Errors
    /// The time of the largest one, and the text.
    pub(super) fn check(&self) -> Result<(), (Option<Instant>, String)> {
        let Self { notified, p99, most } = self;
        if *most > MOST || (notified.len() >= ENOUGH && *p99 > P99) {
            let when = notified.iter().find(|(_, late)| late == most).map(|(at, _)| *at);
            let count = notified.len();
            let text = format!("late: lost() of {count} by {p99:?} p99, {most:?} at {when:?}");
            return Err((when, text));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{history, line::short};

    const MS: u64 = 1_000_000;

    /// Returns the delays of holds whose leases expired at 40 ms, with notifications at these
    /// times.
    fn notified(at: &[u64], more: &str) -> Lateness {
        let mut text = more.to_owned();
        for (n, ms) in at.iter().enumerate() {
            let ask = format!("{n} ask 0 storm x 1 a\n{n} got 5 7 {}\n", 40 * MS);
            text += &(ask + &format!("{n} lost {} expired\n", ms * MS));
        }
        let lines = short::lines(0, &text);
        let acquisitions = history::acquisitions(&lines, &BTreeMap::new()).unwrap();
        Lateness::of(acquisitions.iter(), &history::idle(&lines))
    }

    #[test]
    fn in_time_or_a_little_late_is_right() {
        let right = notified(&[40, 39, 41, 120], "");
        assert_eq!((right.check(), right.most()), (Ok(()), Duration::from_millis(80)));
        assert_eq!(right.notified().len(), 4);
        assert_eq!(notified(&[], "").check(), Ok(()));
    }

    #[test]
    fn one_that_is_very_late_is_wrong() {
        assert!(notified(&[40, 141], "").check().is_err());
    }

    #[test]
    fn many_that_are_late_are_wrong() {
        let all: Vec<u64> = (0..200).map(|n| if n < 3 { 61 } else { 40 }).collect();
        assert!(notified(&all, "").check().is_err());
        assert_eq!(notified(&all[1..], "").p99(), Duration::from_millis(21));
        assert_eq!(notified(&all[2..], "").check(), Ok(()));
    }

    #[test]
    fn a_process_that_did_not_run_or_look_is_excused() {
        let late = format!("- late {} {}\n", 200 * MS, 30 * MS);
        assert_eq!(notified(&[201], &late).most(), Duration::from_millis(1));
        assert!(notified(&[301], &late).check().is_err());
        let text = format!("0 ask 0 storm x 1 a\n0 got 5 7 {}\n0 look {}\n", 40 * MS, 300 * MS);
        let lines = short::lines(0, &format!("{text}0 lost {} expired\n", 302 * MS));
        let acquisitions = history::acquisitions(&lines, &BTreeMap::new()).unwrap();
        assert_eq!(
            Lateness::of(acquisitions.iter(), &BTreeMap::new()).most(),
            Duration::from_millis(2)
        );
    }
}
