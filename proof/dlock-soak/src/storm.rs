//! The duration of the faults of a case.

use std::time::Duration;

use dlock_core::{Clock, Instant};
use dlock_testkit::{Stop, Verdict};
use tokio::time::sleep;

use super::{Report, Running, effort};

/// The default time for which a case injects faults.
const STORM: Duration = Duration::from_secs(4);

/// The largest factor by which a case takes longer while too little has happened for a verdict.
const LONGEST: u32 = 8;

/// The number of grants that a verdict needs.
const GRANTS: usize = 50;

/// The time in which a case injects faults: four seconds times [`effort`]. It is extended if too
/// little has happened for a verdict by then, for example on a busy machine or a slow disk.
#[derive(Debug)]
pub struct Storm {
    name: &'static str,
    began: Instant,
    faults: usize,
    cancels: usize,
}

impl Storm {
    /// Returns a storm that begins now.
    pub fn begin(name: &'static str) -> Self {
        Self { name, began: Clock::Boot.now(), faults: 0, cancels: 0 }
    }

    /// Extends the storm until this number of attempts were cancelled, within its longest time.
    #[must_use]
    pub fn with_cancels(self, cancels: usize) -> Self {
        Self { cancels, ..self }
    }

    /// Waits for a random time up to `most` milliseconds, and counts a fault. Returns `false` if
    /// the storm is over.
    pub async fn next(&mut self, load: &Running, most: u64) -> bool {
        let (lasts, time) = (Clock::Boot.now().since(self.began), STORM.mul_f64(effort()));
        // Each count reads all logs again.
        let dropped = || self.cancels == 0 || load.cancelled() >= self.cancels;
        let enough = || load.grants() >= GRANTS && dropped();
        if lasts >= time.max(STORM) * LONGEST || lasts >= time && enough() {
            return false;
        }
        sleep(Duration::from_millis(rand::random_range(most / 4..=most))).await;
        self.faults += 1;
        true
    }

    /// Prints a summary, and checks that there was a fault.
    ///
    /// # Errors
    /// If there was none.
    pub fn says<'a>(&self, report: &'a Report) -> Result<Judged<'a>, Stop> {
        println!("{}: {} faults, {report}", self.name, self.faults);
        match self.faults {
            0 => Err(Stop::failed("no fault was done")),
            _ => Ok(Judged { report, cancels: self.cancels }),
        }
    }
}

/// What a storm says about its report. A violation fails the case. If there is none, and too little
/// happened for a verdict, the case is ignored with this reason.
#[derive(Debug)]
pub struct Judged<'a> {
    report: &'a Report,
    cancels: usize,
}

impl Judged<'_> {
    /// Does [`Report::check`].
    ///
    /// # Errors
    /// The first violation, or that too little happened.
    pub fn check(&self) -> Verdict {
        self.report.check()?;
        self.enough()
    }

    /// Does [`Report::check_exclusion`].
    ///
    /// # Errors
    /// The first violation, or that too little happened.
    pub fn check_exclusion(&self) -> Verdict {
        self.report.check_exclusion()?;
        self.enough()
    }

    /// Does [`Report::check_tokens`].
    ///
    /// # Errors
    /// The first violation, or that too little happened.
    pub fn check_tokens(&self) -> Verdict {
        self.report.check_tokens()?;
        self.enough()
    }

    /// Checks that enough happened for a verdict.
    ///
    /// # Errors
    /// If it is not so. Then the case is ignored.
    pub fn enough(&self) -> Verdict {
        let (grants, cancels) = (self.report.grants(), self.report.cancelled());
        if grants < GRANTS {
            return Err(Stop::undecided(format!("too few grants for a verdict: {}", self.report)));
        }
        if cancels < self.cancels {
            return Err(Stop::undecided(format!("too few cancels for a verdict: {}", self.report)));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use dlock_testkit::Outcome;

    use super::*;

    #[test]
    fn a_run_without_faults_proves_nothing() {
        let refused = Storm::begin("control").says(&Report::default()).map(drop).unwrap_err();
        assert!(refused.into_text().contains("no fault"));
    }

    #[test]
    fn a_run_with_too_few_grants_is_ignored() {
        let mut storm = Storm::begin("control");
        storm.faults = 1;
        let judged = storm.says(&Report::default()).unwrap().check();
        assert!(matches!(judged.into(), Outcome::Ignored { store_missing: false, .. }));
    }
}
