//! What is measured, and what rounds of it come to.

use serde::Serialize;

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Figure {
    /// The median of a cycle or of a hand-over, in microseconds.
    P50,
    /// The 99th percentile of it.
    P99,
    /// Cycles or hand-overs a second.
    Rate,
    /// Jain's index over the clients: 1 when all have the same share.
    Fairness,
    /// Commands that the server counted for a hand-over.
    Commands,
    /// Processor seconds of the clients for a million cycles.
    ClientTime,
    /// Those of the server.
    ServerTime,
    /// Processor time of the client in per cent of a core.
    ClientCore,
    /// That of the server.
    ServerCore,
    /// Commands a second.
    CommandRate,
    /// Memory of a lock that is held, or of what a name leaves in the store, in bytes.
    Bytes,
    /// Locks that were renewed late, or lost.
    Late,
    /// Keys, rows or nodes that a name leaves in the store.
    Entries,
    /// How often one name was used.
    Cycles,
    /// The median cycle of a name that was used for long, in terms of that of a new name.
    Ageing,
    /// The largest snapshot and log that a row had, in bytes.
    Row,
    /// The table of the locks after that, with its index, in KiB.
    Table,
    /// Keys, rows or nodes that stay longer than they should.
    Left,
    /// Seconds from the last use of any name until nothing was left of all.
    Gone,
    /// Fencing tokens that did not grow while nothing was left of their names.
    Stale,
}

impl Figure {
    /// As it stands in a table.
    pub(crate) const fn label(self) -> &'static str {
        match self {
            Self::P50 => "p50, us",
            Self::P99 => "p99, us",
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
            Self::Stale => "tokens not grown",
        }
    }
}

/// One figure over all rounds.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Spread {
    /// The median round.
    pub(crate) median: f64,
    /// The round that a tenth is below.
    pub(crate) p10: f64,
    /// The round that a tenth is above.
    pub(crate) p90: f64,
    /// The median, over the rounds, of what it is to the baseline's in the same round.
    pub(crate) to_baseline: Option<f64>,
    /// All rounds, in their order.
    pub(crate) rounds: Vec<f64>,
}

impl Spread {
    /// Of these rounds, beside those of the baseline; none if there are none.
    pub(crate) fn of(rounds: &[f64], baseline: Option<&[f64]>) -> Option<Self> {
        let pairs = rounds.iter().zip(baseline.unwrap_or_default());
        let ratios: Vec<f64> = pairs.map(|(own, baseline)| own / baseline).collect();
        Some(Self {
            median: quantile(rounds, 50)?,
            p10: quantile(rounds, 10)?,
            p90: quantile(rounds, 90)?,
            to_baseline: quantile(&ratios, 50),
            rounds: rounds.to_vec(),
        })
    }
}

/// The value that so many per cent are below, between two where it falls between them. What is no
/// number could not be measured in that round; nothing when there is nothing else.
fn quantile(values: &[f64], percent: usize) -> Option<f64> {
    let mut values: Vec<f64> = values.iter().copied().filter(|value| value.is_finite()).collect();
    values.sort_unstable_by(f64::total_cmp);
    let at = values.len().checked_sub(1)? * percent;
    let (below, rest) = (at / 100, f64::from(u32::try_from(at % 100).ok()?) / 100.0);
    let low = values[below];
    let high = values[(below + 1).min(values.len() - 1)];
    Some(low + (high - low) * rest)
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
        // The machine was half as fast in the second round, for both.
        let spread = Spread::of(&[10.0, 20.0, 10.0], Some(&[5.0, 10.0, 5.0])).unwrap();
        assert_eq!(spread.to_baseline, Some(2.0));
    }
}
