//! The `main` function of a target of fault tests.

use std::{fmt, pin::Pin, time::Duration};

use dlock_core::{DynBackend, Error};
use dlock_testkit::{
    Verdict,
    support::{completion, is_required, repeated_once, runtime},
};
use libtest_mimic::{Arguments, Trial};

use crate::child;

/// The variable that multiplies the time of fault injection.
const EFFORT: &str = "DLOCK_TEST_EFFORT";

/// The default number of test threads. Each case starts its own servers and processes.
const THREADS: usize = 2;

/// The shortest lease of most loads: a stall of a quarter of it is a relevant part.
const LEASE: Duration = Duration::from_millis(300);

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
