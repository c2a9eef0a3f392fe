//! Statistics of measurements.

use std::time::Duration;

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
