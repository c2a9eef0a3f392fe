//! **Liveness**: no lock is stuck. Its holder releases it or the lease expires. Then a waiter is
//! granted within a [bound](BOUND).
//!
//! **Bypass**: no waiter in the queue is passed over, or not too often. No history shows in which
//! order the store saw the claims of several processes. But if its process and the store worked, a
//! claim is in the queue before a claim that was requested [much later](ARRIVAL). If the lock is
//! fair, no later claim may be granted while the earlier one still waits; if the lock is not fair,
//! only a few may.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
    time::Duration,
};

use dlock_core::Instant;

use super::{
    history::Acquisition,
    line::{Line, TIMEOUT, Wanted, What},
    times::Times,
};

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

/// The longest time that a claim needs to reach the store, and that a cancelled claim needs to
/// leave the queue. It is longer than a request that is not answered and then retried.
pub(super) const ARRIVAL: Duration = Duration::from_secs(1);
/// How often each waiter of a plain lock may pass over another waiter.
const TIMES: usize = 10;
/// The longest time that a process may pause without losing its place in the queue. If no fault
/// made it pause, it is also the longest time that the machine may be too busy to serve the store.
const STILL: Duration = Duration::from_millis(50);

/// A wait that other claims passed over.
#[derive(Clone, Debug)]
pub(super) struct Passed<'a> {
    pub(super) waiter: &'a Acquisition,
    pub(super) times: usize,
    pub(super) allowed: usize,
}

/// Returns the waits for one name that were passed over too often. `outages` has the times in which
/// the store had a fault, and `own` those in which a process had one.
pub(super) fn passed_over<'a>(
    acquisitions: &'a [Acquisition],
    outages: &Times,
    own: &BTreeMap<usize, Times>,
    ended: Instant,
) -> Vec<Passed<'a>> {
    let allowed = most_waiters(acquisitions, ended).saturating_mul(TIMES);
    let mut found = of_kind(acquisitions, outages, own, ended, Wanted::Fair, 0);
    found.extend(of_kind(acquisitions, outages, own, ended, Wanted::Mutex, allowed));
    found
}

fn of_kind<'a>(
    acquisitions: &'a [Acquisition],
    outages: &Times,
    own: &BTreeMap<usize, Times>,
    ended: Instant,
    kind: Wanted,
    allowed: usize,
) -> Vec<Passed<'a>> {
    let none = Times::default();
    let mut waits: Vec<(Instant, Instant, &Acquisition)> = acquisitions
        .iter()
        .filter(|acquisition| acquisition.kind == kind && !acquisition.again)
        .map(|acquisition| (acquisition.asked, in_line_until(acquisition, ended), acquisition))
        .filter(|&(from, to, acquisition)| {
            let own = own.get(&acquisition.process()).unwrap_or(&none);
            to.since(from) > ARRIVAL && !outages.meet(from, to) && !own.meet(from, to)
        })
        .collect();
    waits.sort_by_key(|(asked, ..)| Reverse(*asked));
    let mut passers = passers(acquisitions, kind);
    passers.sort_unstable_by_key(|(asked, _)| Reverse(*asked));
    let mut grants: Vec<Instant> = passers.iter().map(|(_, got)| *got).collect();
    grants.sort_unstable();
    let (mut later, mut counts) = (passers.iter().peekable(), Counts::new(grants.len()));
    let mut found = Vec::new();
    for (asked, to, waiter) in waits {
        while let Some((_, got)) =
            later.next_if(|(other, _)| *other > asked.saturating_add(ARRIVAL))
        {
            counts.add(grants.partition_point(|at| at < got));
        }
        let times = counts.below(grants.partition_point(|at| *at < to));
        if times > allowed {
            found.push(Passed { waiter, times, allowed });
        }
    }
    found
}

/// Returns the time until which the claim was certainly in the queue.
fn in_line_until(acquisition: &Acquisition, ended: Instant) -> Instant {
    let given_up = acquisition.not.as_ref().map(|(at, ..)| at.saturating_sub(ARRIVAL));
    let got = acquisition.got.map(|(at, _)| at);
    [given_up, got, acquisition.cut].into_iter().flatten().min().unwrap_or(ended)
}

/// Returns the times of request and grant of the claims that must not pass over a claim of this
/// kind. If a process hands off a plain lock from task to task, only the first of these grants
/// counts.
fn passers(acquisitions: &[Acquisition], kind: Wanted) -> Vec<(Instant, Instant)> {
    let granted = acquisitions
        .iter()
        .filter_map(|acquisition| acquisition.got.map(|(at, _)| (at, acquisition)));
    if kind == Wanted::Fair {
        let fair = granted.filter(|(_, acquisition)| acquisition.kind == Wanted::Fair);
        return fair.map(|(got, acquisition)| (acquisition.asked, got)).collect();
    }
    let mut granted: Vec<(Instant, &Acquisition)> = granted.collect();
    granted.sort_by_key(|(got, _)| *got);
    let rows = granted.chunk_by(|(_, a), (_, b)| a.process() == b.process());
    rows.map(|row| (row[0].1.asked, row[0].0)).collect()
}

/// Returns the largest number of claims that waited at one time.
fn most_waiters(acquisitions: &[Acquisition], ended: Instant) -> usize {
    let mut waits: Vec<(Instant, Instant)> = acquisitions
        .iter()
        .map(|acquisition| (acquisition.asked, acquisition.answered().unwrap_or(ended)))
        .collect();
    waits.sort_unstable();
    let (mut most, mut ends) = (0, BinaryHeap::new());
    for (from, to) in waits {
        while ends.peek().is_some_and(|Reverse(end)| *end <= from) {
            ends.pop();
        }
        ends.push(Reverse(to));
        most = most.max(ends.len());
    }
    most
}

/// Counts by index, with the sum below an index: a Fenwick tree.
struct Counts(Vec<usize>);

impl Counts {
    fn new(places: usize) -> Self {
        Self(vec![0; places + 1])
    }

    fn add(&mut self, place: usize) {
        let mut i = place + 1;
        while i < self.0.len() {
            self.0[i] += 1;
            i += i & i.wrapping_neg();
        }
    }

    fn below(&self, place: usize) -> usize {
        let (mut i, mut sum) = (place, 0);
        while i > 0 {
            sum += self.0[i];
            i -= i & i.wrapping_neg();
        }
        sum
    }
}

/// Returns the times in which processes paused for long enough to lose their places in the queue.
pub(super) fn standstills<'a>(
    lines: impl IntoIterator<Item = &'a Line>,
) -> BTreeMap<usize, Vec<(Instant, Instant)>> {
    let mut all: BTreeMap<usize, Vec<(Instant, Instant)>> = BTreeMap::new();
    for line in lines {
        match line.what {
            What::Late { since } if line.at.since(since) > STILL => {
                all.entry(line.process).or_default().push((since, line.at));
            }
            _ => {}
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{history, line::short};

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

    /// Returns how often a claim that waits from 0 to 3 s is passed over by `others` claims that
    /// are requested at 2 s, by alternating processes.
    fn passed(others: u64, kind: &str, last: &str, outages: &[(u64, u64)]) -> usize {
        let ask = |n: u64, ms: u64| format!("{n} ask {n} storm x {} a {kind}\n", ms * MS);
        let mut lines = short::lines(0, &(ask(1, 0) + last));
        for n in 2..others + 2 {
            let got = (2001 + n) * MS;
            let text = ask(n, 2000) + &format!("{n} got {got} {n} {}\n", got + 1);
            lines.extend(short::lines(1 + usize::try_from(n % 2).unwrap(), &text));
        }
        let acquisitions = history::acquisitions(&lines, &BTreeMap::new()).unwrap();
        let at = |ms| Instant::from_nanos(ms * MS);
        let outages = Times::of(outages.iter().map(|&(a, b)| (at(a), at(b))).collect());
        let own = standstills(&lines).into_iter().map(|(n, all)| (n, Times::of(all))).collect();
        passed_over(&acquisitions, &outages, &own, at(6000)).iter().map(|passed| passed.times).sum()
    }

    fn got(ms: u64) -> String {
        format!("1 got {} 1 {}\n", ms * MS, ms * MS + 1)
    }

    #[test]
    fn the_first_to_be_granted_is_not_bypassed() {
        assert_eq!(passed(5, "fair", &got(2002), &[]), 0);
    }

    #[test]
    fn one_that_came_much_later_passes_over_a_fair_waiter() {
        assert_eq!(passed(1, "fair", &got(3000), &[]), 1);
        assert_eq!(passed(5, "fair", "", &[]), 5, "it waits for ever");
        let gives_up = format!("1 not {} Timeout late\n", 5000 * MS);
        assert_eq!(passed(5, "fair", &gives_up, &[]), 5);
    }

    #[test]
    fn an_outage_is_an_excuse() {
        assert_eq!(passed(1, "fair", &got(3000), &[(500, 501)]), 0);
        assert_eq!(passed(1, "fair", &got(3000), &[(3001, 4000)]), 1);
        let late = |ms: u64| format!("- late {} {}\n", (700 + ms) * MS, 700 * MS);
        assert_eq!(passed(1, "fair", &(late(200) + &got(3000)), &[]), 0);
        assert_eq!(passed(1, "fair", &(late(20) + &got(3000)), &[]), 1);
        assert_eq!(passed(1, "fair", &("1 again 9\n".to_owned() + &got(3000)), &[]), 0);
        let gives_up = format!("1 not {} Timeout late\n", 2100 * MS);
        assert_eq!(passed(5, "fair", &gives_up, &[]), 0, "it may have been out of line");
    }

    #[test]
    fn few_may_pass_over_a_plain_waiter() {
        // At most 6 claims wait at one time.
        assert_eq!(passed(5, "mutex", &got(3000), &[]), 0);
        let later = |n: u64| {
            format!("{n} ask 9 storm x {} a\n{n} got {} {n} {}\n", n * MS, n * MS + 1, n * MS + 2)
        };
        let all = |of: u64| -> usize {
            let mut lines = short::lines(0, &format!("1 ask 1 storm x 0 a\n{}", got(3000)));
            for n in 1100..1100 + of {
                lines.extend(short::lines(1 + usize::try_from(n % 2).unwrap(), &later(n)));
            }
            let acquisitions = history::acquisitions(&lines, &BTreeMap::new()).unwrap();
            passed_over(
                &acquisitions,
                &Times::default(),
                &BTreeMap::new(),
                Instant::from_nanos(6000 * MS),
            )
            .len()
        };
        assert_eq!((all(20), all(21)), (0, 1));
    }
}
