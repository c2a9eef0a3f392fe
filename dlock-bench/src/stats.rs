//! What rounds of measurements come to.
//!
//! Other work on the machine only ever makes a round worse, so the best of several rounds is the
//! steadiest figure, for floor and dlock alike.

use std::time::Duration;

/// The value that half of them are below. Not a number when there are none.
pub(crate) fn median(values: Vec<Duration>) -> f64 {
    percentile(values, 50)
}

/// The value that so many per cent of them are below, in microseconds.
pub(crate) fn percentile(mut values: Vec<Duration>, percent: usize) -> f64 {
    values.sort_unstable();
    let at = (values.len() * percent / 100).min(values.len().saturating_sub(1));
    values.get(at).map_or(f64::NAN, |value| value.as_secs_f64() * 1e6)
}

/// The best of several rounds, when less is better.
pub(crate) fn lowest(rounds: &[f64]) -> f64 {
    rounds.iter().copied().fold(f64::NAN, f64::min)
}

/// The best of several rounds, when more is better.
pub(crate) fn highest(rounds: &[f64]) -> f64 {
    rounds.iter().copied().fold(f64::NAN, f64::max)
}

/// The round that half of them are below, for what is good by luck as often as bad.
pub(crate) fn middle(rounds: &[f64]) -> f64 {
    let mut rounds = rounds.to_vec();
    rounds.sort_unstable_by(f64::total_cmp);
    rounds.get(rounds.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Jain's index: 1 when all have the same share, one n-th when one of n has everything.
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

/// By how much, in per cent of the mean, the share that is furthest from it differs.
pub(crate) fn deviation(shares: &[u32]) -> f64 {
    let all: Vec<f64> = shares.iter().copied().map(f64::from).collect();
    let mean = all.iter().sum::<f64>() / all.iter().map(|_| 1.0).sum::<f64>();
    let furthest = all.iter().map(|share| (share - mean).abs()).fold(f64::NAN, f64::max);
    100.0 * furthest / mean
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_were_measured() {
        let values: Vec<_> = (1..=100).rev().map(Duration::from_micros).collect();
        assert_eq!(median(values.clone()), 51.0);
        assert_eq!(percentile(values, 99), 100.0);
        assert_eq!(percentile(vec![Duration::from_micros(7)], 99), 7.0);
        assert!(median(Vec::new()).is_nan());
    }

    #[test]
    fn the_best_round_counts() {
        assert_eq!(lowest(&[3.0, 1.0, 2.0]), 1.0);
        assert_eq!(highest(&[3.0, 1.0, 2.0]), 3.0);
        assert_eq!(middle(&[3.0, 1.0, 2.0]), 2.0);
        assert!(lowest(&[]).is_nan() && middle(&[]).is_nan());
    }

    #[test]
    fn fairness_is_between_one_nth_and_one() {
        assert_eq!(fairness(&[5, 5, 5, 5]), 1.0);
        assert_eq!(fairness(&[8, 0, 0, 0]), 0.25);
    }

    #[test]
    fn deviation_is_that_of_the_worst() {
        assert_eq!(deviation(&[5, 5]), 0.0);
        assert_eq!(deviation(&[10, 10, 13, 7]), 30.0);
        assert!(deviation(&[]).is_nan() && deviation(&[0, 0]).is_nan());
    }
}
