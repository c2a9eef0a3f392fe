//! The quantities that are measured, and the statistics of their rounds.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A quantity that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Figure {
    /// The median of a cycle or of a hand-off, in microseconds.
    P50,
    /// The 99th percentile of the same.
    P99,
    /// The median in round trips of the network.
    Trips,
    /// Cycles or hand-offs per second.
    Rate,
    /// Jain's index over the clients: 1 if all have the same share.
    Fairness,
    /// Commands per hand-off, as the server counts them.
    Commands,
    /// Processor seconds of the clients per million cycles.
    ClientTime,
    /// Processor seconds of the server per million cycles.
    ServerTime,
    /// Processor time of the client, in per cent of a core.
    ClientCore,
    /// Processor time of the server, in per cent of a core.
    ServerCore,
    /// Commands per second.
    CommandRate,
    /// Memory of a held lock, or of what a name leaves in the store, in bytes.
    Bytes,
    /// Locks that were renewed late, or lost.
    Late,
    /// Keys, rows or nodes that a name leaves in the store.
    Entries,
    /// The number of uses of one name.
    Cycles,
    /// The ratio of the median cycle of a name that was used for long to that of a new name.
    Ageing,
    /// The largest snapshot and log of a row, in bytes.
    Row,
    /// The size of the locks' table after that, with its index, in KiB.
    Table,
    /// Keys, rows or nodes that remain longer than they should.
    Left,
    /// Seconds from the last use of any name until the store contained nothing of all names.
    Gone,
    /// The median time from the death of a holder to the next hold, in seconds.
    KilledP50,
    /// The 99th percentile of the same.
    KilledP99,
    /// The median time from the freeze of a holder to the next hold, in seconds.
    FrozenP50,
    /// The 99th percentile of the same.
    FrozenP99,
    /// The median time from the cut of a holder's network to the next hold, in seconds.
    CutP50,
    /// The 99th percentile of the same.
    CutP99,
    /// Locks that had another holder although nothing had happened to the first one.
    Needless,
    /// Clients that did not get the lock within the limit.
    Unserved,
    /// Fencing tokens that were not larger after the store had forgotten their names.
    Stale,
}

impl Figure {
    /// Whether a higher value is better.
    pub(crate) const fn is_better_high(self) -> bool {
        matches!(self, Self::Rate | Self::Fairness | Self::Cycles)
    }

    /// Returns the text for a table.
    pub(crate) const fn label(self) -> &'static str {
        match self {
            Self::P50 => "p50, us",
            Self::P99 => "p99, us",
            Self::Trips => "p50, round trips",
            Self::Rate => "per second",
            Self::Fairness => "Jain fairness",
            Self::Commands => "commands each",
            Self::ClientTime => "client CPU s / 1e6",
            Self::ServerTime => "server CPU s / 1e6",
            Self::ClientCore => "client, % of a core",
            Self::ServerCore => "server, % of a core",
            Self::CommandRate => "commands per second",
            Self::Bytes => "bytes each",
            Self::Late => "late or lost",
            Self::Entries => "entries each",
            Self::Cycles => "cycles of a name",
            Self::Ageing => "p50 to a new name's",
            Self::Row => "largest row, bytes",
            Self::Table => "table, KiB",
            Self::Left => "entries left",
            Self::Gone => "s until gone",
            Self::KilledP50 => "killed: p50, s",
            Self::KilledP99 => "killed: p99, s",
            Self::FrozenP50 => "frozen: p50, s",
            Self::FrozenP99 => "frozen: p99, s",
            Self::CutP50 => "cut off: p50, s",
            Self::CutP99 => "cut off: p99, s",
            Self::Needless => "lost needlessly",
            Self::Unserved => "without the lock",
            Self::Stale => "tokens not grown",
        }
    }
}

/// The statistics of one quantity over all rounds.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Spread {
    /// The median round.
    pub(crate) median: f64,
    /// The 10th percentile of the rounds.
    pub(crate) p10: f64,
    /// The 90th percentile of the rounds.
    pub(crate) p90: f64,
    /// The median of the ratios to the baseline in the same round.
    pub(crate) to_baseline: Option<f64>,
    /// The ratios to the baseline of all rounds that have one.
    pub(crate) ratios: Vec<f64>,
    /// All rounds in order.
    pub(crate) rounds: Vec<f64>,
}

impl Spread {
    /// Returns the statistics of these rounds, with ratios to the baseline's rounds; `None` without
    /// rounds.
    pub(crate) fn of(rounds: &[f64], baseline: Option<&[f64]>) -> Option<Self> {
        let pairs = rounds.iter().zip(baseline.unwrap_or_default());
        let ratios = pairs.map(|(own, baseline)| own / baseline);
        let ratios: Vec<f64> = ratios.filter(|ratio| ratio.is_finite()).collect();
        Some(Self {
            median: quantile(rounds, 50)?,
            p10: quantile(rounds, 10)?,
            p90: quantile(rounds, 90)?,
            to_baseline: quantile(&ratios, 50),
            ratios,
            rounds: rounds.to_vec(),
        })
    }
}

/// Returns the percentile, interpolated between two values. Values that are not finite could not be
/// measured and are ignored. Returns `None` if no value is left.
fn quantile(values: &[f64], percent: usize) -> Option<f64> {
    let mut values: Vec<f64> = values.iter().copied().filter(|value| value.is_finite()).collect();
    values.sort_unstable_by(f64::total_cmp);
    let at = values.len().checked_sub(1)? * percent;
    let (below, rest) = (at / 100, f64::from(u32::try_from(at % 100).ok()?) / 100.0);
    let low = values[below];
    let high = values[(below + 1).min(values.len() - 1)];
    Some(low + (high - low) * rest)
}

/// Returns the median; not a number if there are no values.
pub(crate) fn median(values: Vec<Duration>) -> f64 {
    percentile(values, 50)
}

/// Returns the value below which this percentage of the values lies, in microseconds.
pub(crate) fn percentile(mut values: Vec<Duration>, percent: usize) -> f64 {
    values.sort_unstable();
    let at = (values.len() * percent / 100).min(values.len().saturating_sub(1));
    values.get(at).map_or(f64::NAN, |value| value.as_secs_f64() * 1e6)
}

/// Returns Jain's index: 1 if all have the same share, and 1/n if one of n has everything.
pub(crate) fn fairness(shares: &[u32]) -> f64 {
    let mut sum = 0.0;
    let mut squares = 0.0;
    let mut count = 0.0;
    for share in shares {
        let share = f64::from(*share);
        sum += share;
        squares += share * share;
        count += 1.0;
    }
    sum * sum / (count * squares)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_is_the_median_and_the_tenths() {
        let spread = Spread::of(&[5.0, 1.0, 3.0, 2.0, 4.0], None).unwrap();
        assert_eq!((spread.p10, spread.median, spread.p90), (1.4, 3.0, 4.6));
        assert_eq!(spread.to_baseline, None);
        assert!(Spread::of(&[], None).is_none());
        assert!(Spread::of(&[f64::NAN], None).is_none());
        assert_eq!(Spread::of(&[f64::NAN, 7.0], Some(&[2.0, 3.5])).unwrap().to_baseline, Some(2.0));
    }

    #[test]
    fn a_ratio_is_that_of_the_same_round() {
        // In the second round, the machine was half as fast for both.
        let spread = Spread::of(&[10.0, 20.0, 10.0], Some(&[5.0, 10.0, 5.0])).unwrap();
        assert_eq!(spread.to_baseline, Some(2.0));
    }

    #[test]
    fn percentiles_are_values_that_were_measured() {
        let values: Vec<_> = (1..=100).rev().map(Duration::from_micros).collect();
        assert_eq!(median(values.clone()), 51.0);
        assert_eq!(percentile(values, 99), 100.0);
        assert_eq!(percentile(vec![Duration::from_micros(7)], 99), 7.0);
        assert!(median(Vec::new()).is_nan());
    }

    #[test]
    fn fairness_is_between_one_nth_and_one() {
        assert_eq!(fairness(&[5, 5, 5, 5]), 1.0);
        assert_eq!(fairness(&[8, 0, 0, 0]), 0.25);
    }
}
