//! The verdict: pass, fail or unknown.

use std::fmt;

use serde::Serialize;

use super::{tally::Tally, topology::StoreArg};
use crate::Check;

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
    use super::{
        super::{
            fault::Fault,
            tally::{Count, Rates},
        },
        *,
    };

    fn redis() -> StoreArg {
        StoreArg::parse("private:redis").unwrap()
    }

    /// Returns a tally with enough of everything, and without violations.
    fn well() -> Tally {
        let mut tally = Tally { grants: 6000, ..Tally::default() };
        for fault in Fault::HOLDERS {
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
}
