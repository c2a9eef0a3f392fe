//! The `main` function of a target of fault tests, and the duration of the faults of a case.

use std::{fmt, pin::Pin, time::Duration};

use dlock_core::{Clock, DynBackend, Error, Instant};
use dlock_testkit::{
    Stop, Verdict,
    support::{completion, is_required, repeated_once, runtime},
};
use libtest_mimic::{Arguments, Trial};
use tokio::time::sleep;

use super::{child, parent::Running, report::Report};

/// The variable that multiplies the time of fault injection.
const EFFORT: &str = "DLOCK_TEST_EFFORT";

/// The default number of test threads. Each case starts its own servers and processes.
const THREADS: usize = 2;

/// The shortest lease of most loads: a stall of a quarter of it is a relevant part.
const LEASE: Duration = Duration::from_millis(300);

/// The default time for which a case injects faults.
const STORM: Duration = Duration::from_secs(4);

/// The largest factor by which a case takes longer while too little has happened for a verdict.
const LONGEST: u32 = 8;

/// The number of grants that a verdict needs.
const GRANTS: usize = 50;

type Case = Box<dyn Fn() -> Pin<Box<dyn Future<Output = Verdict>>> + Send>;

/// One case that injects faults.
pub struct Scenario {
    name: String,
    store: Option<&'static str>,
    case: Case,
    ignored: bool,
}

impl Scenario {
    /// Returns a case with this name.
    pub fn new<C, F>(name: &str, case: C) -> Self
    where
        C: Fn() -> F + Send + 'static,
        F: Future<Output = Verdict> + 'static,
    {
        let case: Case = Box::new(move || Box::pin(case()));
        Self { name: name.to_owned(), store: None, case, ignored: false }
    }

    /// Returns the case with another store than the target's.
    #[must_use]
    pub fn over(self, store: &'static str) -> Self {
        Self { store: Some(store), ..self }
    }

    /// Returns the case as one that runs only with `--ignored`.
    #[must_use]
    pub fn ignored(self) -> Self {
        Self { ignored: true, ..self }
    }
}

impl fmt::Debug for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scenario").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Runs the cases, each as a test of its own, and exits. In a child process, it acquires locks for
/// a [`Load`](super::Load) instead, with the backend that `connect` returns for the address of the
/// store.
///
/// If the server of a case is [missing](dlock_testkit::Stop::missing), the case is ignored, unless
/// `DLOCK_TEST_REQUIRE` lists `store` or the store that the case is [over](Scenario::over). A case
/// that fails while the machine stalls is repeated once, as [`dlock_testkit::run`] does.
pub fn run<C, F>(store: &str, connect: C, scenarios: Vec<Scenario>) -> !
where
    C: Fn(String) -> F,
    F: Future<Output = Result<DynBackend, Error>>,
{
    serve_if_child(connect);
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(THREADS);
    let trials = scenarios.into_iter().map(|Scenario { name, store: over, case, ignored }| {
        let store = over.unwrap_or(store);
        let required = is_required(store);
        let title = format!("{store}: {name}");
        let trial = Trial::ignorable_test(name, move || {
            let run = || runtime()?.block_on(case());
            completion(repeated_once(&title, LEASE, run, run).into(), required)
        });
        trial.with_ignored_flag(ignored)
    });
    libtest_mimic::run(&arguments, trials.collect()).exit()
}

/// In a process of holders, serves the parent and exits with it.
pub(crate) fn serve_if_child<C, F>(connect: C)
where
    C: Fn(String) -> F,
    F: Future<Output = Result<DynBackend, Error>>,
{
    if child::is_one() {
        child::serve(connect);
    }
}

/// Returns the factor for the time of fault injection, which may be a fraction.
pub fn effort() -> f64 {
    let times = std::env::var(EFFORT).ok().and_then(|times| times.parse().ok());
    times.filter(|times| (0.01..=1e6).contains(times)).unwrap_or(1.0)
}

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
        self.goes_on(load, most, true).await
    }

    /// Does the same, and also extends the storm, within its longest time, while it is not
    /// `complete`.
    pub(super) async fn goes_on(&mut self, load: &Running, most: u64, complete: bool) -> bool {
        let (lasts, time) = (Clock::Boot.now().since(self.began), STORM.mul_f64(effort()));
        // Each count reads all logs again.
        let dropped = || self.cancels == 0 || load.cancelled() >= self.cancels;
        let enough = || complete && load.grants() >= GRANTS && dropped();
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

/// The verdict of a storm on its report. A violation fails the case. If there is none, and too
/// little happened for a verdict, the case is ignored with this reason.
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
