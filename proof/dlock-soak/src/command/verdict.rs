//! The results of all rounds on one store as numbers, and the verdict: pass, fail or unknown.

use std::{collections::BTreeMap, fmt, time::Duration};

use serde::Serialize;

use super::{
    options::StoreArg,
    round::{RECOVERY, Round, WARM_UP},
};
use crate::{
    breach::Check,
    fault::{Effect, Fault},
};

/// The number of examples that are kept for each kind of violation.
const EXAMPLES: usize = 5;

/// The results of all rounds on one store, as numbers.
#[derive(Debug, Default, Serialize)]
pub(super) struct Tally {
    pub(super) store: String,
    pub(super) what: String,
    pub(super) rounds: u32,
    /// The time in which faults were injected, in seconds.
    pub(super) faults_s: f64,
    pub(super) grants: usize,
    pub(super) faults: BTreeMap<Fault, Count>,
    /// The reasons why faults did not take effect, with a few examples.
    pub(super) missed: Vec<String>,
    /// The number of holders that kept their hold after the store had lost its data or its clock
    /// had stepped, while another client held the lock.
    pub(super) excused: usize,
    /// The number of holders that were notified of a clock step or of lost data.
    pub(super) warned: usize,
    /// The number of late writes that the fence refused.
    pub(super) refused: usize,
    pub(super) lost: usize,
    pub(super) violations: BTreeMap<Check, Violations>,
    /// The grants a second.
    pub(super) rates: Rates,
    /// The time from a release to the next grant, in milliseconds.
    pub(super) hand_off_ms: Spread,
    /// The time from the local deadline to `lost()`, in milliseconds.
    pub(super) lateness_ms: Spread,
}

/// How often a fault was attempted, and how often it proved that it took effect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Count {
    pub(super) tried: u32,
    pub(super) proven: u32,
}

/// The violations of one check.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Violations {
    pub(super) count: usize,
    pub(super) examples: Vec<String>,
}

/// Grants a second, as means over all rounds.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct Rates {
    pub(super) before: f64,
    pub(super) during: f64,
    pub(super) after: f64,
}

/// The distribution of times.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct Spread {
    pub(super) count: usize,
    pub(super) p50: f64,
    pub(super) p99: f64,
    pub(super) max: f64,
}

impl Tally {
    /// Computes the results of these rounds.
    pub(super) fn of(place: &StoreArg, rounds: &[Round]) -> Self {
        let mut tally = Self {
            store: place.name().to_owned(),
            what: place.what().to_owned(),
            ..Self::default()
        };
        let (mut hand_offs, mut lateness) = (Vec::new(), Vec::new());
        let (mut before, mut during, mut after) = (Vec::new(), Vec::new(), Vec::new());
        for round in rounds {
            tally.rounds += 1;
            tally.add_deeds(round);
            for breach in &round.violations {
                tally.add(breach.check, &breach.text);
            }
            let Some(report) = &round.report else { continue };
            tally.grants += report.grants();
            tally.excused += report.excused();
            tally.warned += report.warned();
            tally.refused += report.late_writes();
            tally.lost += report.lost();
            hand_offs.extend(report.hand_offs().iter().map(|(_, time)| *time));
            lateness.extend(report.lateness().notified().iter().map(|(_, time)| *time));
            let seconds = report.grants_per_second();
            let faults_end = round.faults_end();
            let of = |from: Duration, to: Duration| {
                let (from, to) = (index(from.as_secs()), index(to.as_secs()));
                seconds.get(from..to.min(seconds.len())).unwrap_or_default().to_vec()
            };
            before.extend(of(WARM_UP, round.plan.before));
            during.extend(of(round.plan.before, faults_end));
            let well = faults_end + RECOVERY + Duration::from_secs(1);
            after.extend(of(well, faults_end + round.plan.after));
        }
        tally.rates = Rates { before: mean(&before), during: mean(&during), after: mean(&after) };
        tally.hand_off_ms = Spread::of(hand_offs);
        tally.lateness_ms = Spread::of(lateness);
        tally
    }

    fn add_deeds(&mut self, round: &Round) {
        self.faults_s += round.faults_end().saturating_sub(round.plan.before).as_secs_f64();
        for injection in &round.injections {
            let count = self.faults.entry(injection.fault).or_default();
            count.tried += 1;
            match &injection.effect {
                Effect::Proven => count.proven += 1,
                Effect::Missed(why) if self.missed.len() < EXAMPLES => {
                    self.missed.push(format!("{}: {why}", injection.fault));
                }
                Effect::Missed(_) => {}
            }
        }
    }

    pub(super) fn add(&mut self, check: Check, text: &str) {
        let violations = self.violations.entry(check).or_default();
        violations.count += 1;
        if violations.examples.len() < EXAMPLES {
            violations.examples.push(text.to_owned());
        }
    }

    /// Returns the number of faults that took effect.
    pub(super) fn proven(&self) -> u32 {
        self.faults.values().map(|count| count.proven).sum()
    }

    /// Returns the number of kinds of faults that took effect.
    pub(super) fn kinds(&self) -> usize {
        self.faults.values().filter(|count| count.proven > 0).count()
    }

    /// Returns the number of violations of these checks.
    pub(super) fn wrong(&self, checks: &[Check]) -> usize {
        let of = |check| self.violations.get(check).map_or(0, |wrong| wrong.count);
        checks.iter().map(of).sum()
    }
}

impl Spread {
    fn of(mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        let at = |percent: usize| {
            let rank = (times.len() * percent).div_ceil(100).max(1) - 1;
            times.get(rank).map_or(0.0, |time| time.as_secs_f64() * 1e3)
        };
        Self { count: times.len(), p50: at(50), p99: at(99), max: at(100) }
    }
}

fn mean(seconds: &[u64]) -> f64 {
    let number = |n: u64| u32::try_from(n).map_or(f64::MAX, f64::from);
    let count = u64::try_from(seconds.len()).unwrap_or(u64::MAX);
    if count == 0 { 0.0 } else { number(seconds.iter().sum()) / number(count) }
}

fn index(seconds: u64) -> usize {
    usize::try_from(seconds).unwrap_or(usize::MAX)
}

/// The verdict on a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Outcome {
    /// Every promise was kept, and enough happened to say so.
    Pass,
    /// No violation was seen, but too little happened, or too slowly.
    Unknown,
    /// A promise was broken.
    Fail,
}

/// The verdict on a run, and its reasons.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Judgement {
    pub(super) outcome: Outcome,
    pub(super) reasons: Vec<String>,
}

/// The number of faults that a verdict needs for each minute of a run.
const FAULTS: f64 = 30.0;
/// The number of kinds of faults that a verdict needs.
const KINDS: usize = 5;
/// The lowest rate while faults are injected, as a fraction of the rate without faults.
const DURING: f64 = 0.2;
/// The lowest rate after the last fault and the recovery, as the same fraction. Hold times are
/// random: a few long ones in a row can make two phases without faults differ by this factor.
const RECOVERED: f64 = 0.5;
/// The seconds in a minute: the required numbers are per minute.
const WHOLE: f64 = 60.0;

impl Judgement {
    /// Returns the verdict on a run of this many seconds. On a machine that is `busy` with other
    /// work, a late notification proves nothing: the task may have waited for a processor.
    pub(super) fn of(tally: &Tally, place: &StoreArg, seconds: f64, busy: bool) -> Self {
        let mut wrong = Vec::new();
        let mut late = Vec::new();
        for (check, violations) in &tally.violations {
            let reason = format!("{check}: {} times", violations.count);
            if busy && *check == Check::Lateness {
                late.push(reason);
            } else {
                wrong.push(reason);
            }
        }
        if !wrong.is_empty() {
            wrong.extend(late);
            return Self { outcome: Outcome::Fail, reasons: wrong };
        }
        let mut little = too_little(tally, place, seconds);
        little.extend(late);
        let outcome = if little.is_empty() { Outcome::Pass } else { Outcome::Unknown };
        Self { outcome, reasons: little }
    }
}

fn too_little(tally: &Tally, place: &StoreArg, seconds: f64) -> Vec<String> {
    let mut little = Vec::new();
    let minutes = seconds / WHOLE;
    let grants = f64::from(place.grants()) * minutes;
    if f64::from(u32::try_from(tally.grants).unwrap_or(u32::MAX)) < grants {
        little.push(format!("{} grants of at least {grants:.0}", tally.grants));
    }
    let faults = FAULTS * minutes;
    if f64::from(tally.proven()) < faults {
        little.push(format!("{} faults of at least {faults:.0}", tally.proven()));
    }
    if tally.kinds() < KINDS {
        little.push(format!("{} kinds of faults of at least {KINDS}", tally.kinds()));
    }
    let rates = tally.rates;
    for (what, rate, part) in [
        ("during the faults", rates.during, DURING),
        ("after the last fault", rates.after, RECOVERED),
    ] {
        // Other work on the machine also lowers the rate, so this proves no violation.
        if rate < part * rates.before {
            little.push(format!(
                "{what} it went at {:.0} % of the rate before the faults, and not at {:.0} %",
                100.0 * rate / rates.before,
                100.0 * part
            ));
        }
    }
    for (fault, count) in &tally.faults {
        if count.proven == 0 {
            little.push(format!("{fault}: tried {} times, and never seen to happen", count.tried));
        }
    }
    little
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pass => "pass",
            Self::Unknown => "unknown",
            Self::Fail => "fail",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn redis() -> StoreArg {
        StoreArg::parse("private:redis").unwrap()
    }

    /// Returns a tally with enough of everything, and without violations.
    fn well() -> Tally {
        let mut tally = Tally { grants: 6000, ..Tally::default() };
        for &fault in Fault::HOLDERS {
            tally.faults.insert(fault, Count { tried: 7, proven: 7 });
        }
        tally.rates = Rates { before: 300.0, during: 100.0, after: 290.0 };
        tally
    }

    fn outcome(tally: &Tally) -> Outcome {
        Judgement::of(tally, &redis(), 60.0, false).outcome
    }

    #[test]
    fn a_late_notification_on_a_busy_machine_is_unknown() {
        let mut tally = well();
        tally.add(Check::Lateness, "late");
        assert_eq!(outcome(&tally), Outcome::Fail);
        assert_eq!(Judgement::of(&tally, &redis(), 60.0, true).outcome, Outcome::Unknown);
        tally.add(Check::Exclusion, "two");
        let judged = Judgement::of(&tally, &redis(), 60.0, true);
        assert_eq!(judged.outcome, Outcome::Fail);
        assert_eq!(judged.reasons.len(), 2, "{:?}", judged.reasons);
    }

    #[test]
    fn enough_and_nothing_wrong_is_a_pass() {
        assert_eq!(outcome(&well()), Outcome::Pass);
    }

    #[test]
    fn an_empty_history_is_unknown() {
        assert_eq!(outcome(&Tally::default()), Outcome::Unknown);
        assert_eq!(outcome(&Tally { grants: 0, ..well() }), Outcome::Unknown);
    }

    #[test]
    fn no_faults_are_unknown() {
        let mut tally = well();
        tally.faults.clear();
        assert_eq!(outcome(&tally), Outcome::Unknown);
    }

    #[test]
    fn a_kind_that_never_bit_is_unknown() {
        let mut tally = well();
        tally.faults.insert(Fault::PushesLost, Count { tried: 3, proven: 0 });
        assert_eq!(outcome(&tally), Outcome::Unknown);
    }

    #[test]
    fn too_few_kinds_are_unknown() {
        let mut tally = well();
        tally.faults = [(Fault::HolderKilled, Count { tried: 99, proven: 99 })].into();
        assert_eq!(outcome(&tally), Outcome::Unknown);
    }

    #[test]
    fn one_overlap_is_a_failure_whatever_else_happened() {
        for mut tally in [well(), Tally::default()] {
            tally.add(Check::Exclusion, "two at once");
            assert_eq!(outcome(&tally), Outcome::Fail);
        }
    }

    #[test]
    fn a_standstill_during_or_after_faults_does_not_pass() {
        let mut tally = well();
        tally.rates.during = 50.0;
        assert_eq!(outcome(&tally), Outcome::Unknown);
        let mut tally = well();
        tally.rates.after = 100.0;
        assert_eq!(outcome(&tally), Outcome::Unknown);
    }

    #[test]
    fn times_are_spread() {
        let spread = Spread::of((1..=200).map(Duration::from_millis).collect());
        let close = |a: f64, b: f64| (a - b).abs() < 1e-6;
        assert!(close(spread.p50, 100.0) && close(spread.p99, 198.0) && close(spread.max, 200.0));
        assert_eq!(Spread::of(Vec::new()).count, 0);
    }

    #[test]
    fn a_mean_of_nothing_is_nothing() {
        assert!(mean(&[]).abs() < f64::EPSILON);
        assert!((mean(&[1, 2, 6]) - 3.0).abs() < f64::EPSILON);
    }
}
