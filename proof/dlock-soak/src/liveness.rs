//! **Liveness**: no lock is stuck. Its holder releases it or the lease expires. Then a waiter is
//! granted within a [bound](BOUND).

use std::time::Duration;

use dlock_core::Instant;

use super::{history::Acquisition, line::TIMEOUT, times::Times};

/// The longest time until a waiter of a free lock is granted. It is a generous limit for a busy
/// machine.
pub(super) const BOUND: Duration = Duration::from_secs(5);
/// The shortest wait that counts: a shorter one proves nothing.
const PATIENT: Duration = Duration::from_millis(200);

/// Returns the longest time for which no client held the name while a claim waited
/// and no fault explained it, and the end of that time.
pub(super) fn longest_stuck(
    acquisitions: &[Acquisition],
    outages: &[(Instant, Instant)],
    ended: Instant,
) -> (Duration, Instant) {
    let waits = acquisitions.iter().filter_map(|acquisition| {
        let to = match (&acquisition.got, &acquisition.not, acquisition.cut) {
            (Some((at, _)), ..) => *at,
            (None, Some((at, how, _)), _) if how == TIMEOUT => *at,
            (None, Some(_), _) | (None, None, Some(_)) => return None,
            (None, None, None) => ended,
        };
        (to.since(acquisition.asked) >= PATIENT).then_some((acquisition.asked, to))
    });
    let waits = Times::of(waits.collect());
    let excused = Times::of(waits.rest().chain(outages.iter().copied()).collect());
    let mut holds: Vec<(Instant, Instant)> = acquisitions
        .iter()
        .filter_map(|acquisition| acquisition.got.map(|(at, _)| (at, acquisition.ended())))
        .collect();
    holds.push((ended, ended));
    holds.sort_unstable();
    let (mut free_since, mut longest) = (Instant::from_nanos(0), (Duration::ZERO, ended));
    for (got, until) in holds {
        longest = longest.max((excused.without(free_since, got), got));
        free_since = free_since.max(got).max(until);
    }
    longest
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::{history, short};

    const MS: u64 = 1_000_000;

    fn stuck(text: &str, outages: &[(u64, u64)]) -> u128 {
        let mut all = String::new();
        for line in text.lines() {
            // Numbers that end in `ms` are milliseconds.
            let words = line.split(' ').map(|word| match word.strip_suffix("ms") {
                Some(ms) => (ms.parse::<u64>().unwrap() * MS).to_string(),
                None => word.to_owned(),
            });
            all += &(words.collect::<Vec<_>>().join(" ") + "\n");
        }
        let acquisitions = history::acquisitions(&short::lines(0, &all), &BTreeMap::new()).unwrap();
        let at = |ms| Instant::from_nanos(ms * MS);
        let outages: Vec<_> = outages.iter().map(|&(a, b)| (at(a), at(b))).collect();
        longest_stuck(&acquisitions, &outages, at(9000)).0.as_millis()
    }

    const FIRST: &str = "1 ask 0 storm x 1ms a\n1 got 2ms 1 1000ms\n1 let 900ms\n";

    #[test]
    fn waiting_for_a_holder_is_not_stuck() {
        let next = "2 ask 1 storm x 5ms a\n2 got 903ms 2 2000ms\n2 let 1000ms\n";
        assert_eq!(stuck(&format!("{FIRST}{next}"), &[]), 3);
        assert_eq!(stuck(FIRST, &[]), 0, "nobody waits");
    }

    #[test]
    fn a_free_lock_that_nobody_gets_is_stuck() {
        let waits = "2 ask 1 storm x 5ms a\n";
        assert_eq!(stuck(&format!("{FIRST}{waits}"), &[]), 8100);
        let late = format!("{FIRST}{waits}2 got 7000ms 2 7001ms\n");
        assert_eq!(stuck(&late, &[]), 6100);
        let in_vain = format!("{FIRST}{waits}2 not 3900ms Timeout x\n3 ask 1 storm x 4000ms a\n");
        assert_eq!(stuck(&in_vain, &[]), 8000);
    }

    #[test]
    fn outages_and_cancelled_waits_are_no_proof() {
        let late = format!("{FIRST}2 ask 1 storm x 5ms a\n2 got 7000ms 2 7001ms\n");
        assert_eq!(stuck(&late, &[(1000, 6000)]), 1100);
        let cancelled = format!("{FIRST}2 ask 1 storm x 5ms a\n2 not 7000ms cancelled x\n");
        assert_eq!(stuck(&cancelled, &[]), 0);
    }
}
