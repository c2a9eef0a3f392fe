//! The `main` function of a test target.

use std::sync::Arc;

use libtest_mimic::{Arguments, Completion, Failed, Trial};

use crate::{
    Outcome, Store, Suite,
    all::ALL,
    alone::{REQUIRE, is_required},
    child,
};

/// The default number of test threads. It does not depend on the number of processors, because most
/// cases wait for leases to expire.
const THREADS: usize = 8;

/// Runs every case on this store as a test of its own, and exits the process.
///
/// In a child process of a cross-process case, serves that case instead.
pub fn run(store: impl Store) -> ! {
    run_each(vec![Box::new(store)])
}

/// Does what [`run`] does for one kind of store in several settings, each with its own
/// [`Store::setting`].
pub fn run_each(stores: Vec<Box<dyn Store>>) -> ! {
    if child::is_one() {
        child::serve(&stores);
    }
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(THREADS);
    let (mut suites, mut trials) = (Vec::new(), Vec::new());
    for store in stores {
        let required = is_required(store.name());
        let before = match store.setting() {
            "" => String::new(),
            setting => format!("{setting}::"),
        };
        match Suite::over(store.into()) {
            Ok(suite) => {
                let suite = Arc::new(suite);
                trials.extend(trials_of(&suite, &before, required));
                suites.push(suite);
            }
            Err(error) => {
                eprintln!("no runtime: {error}");
                std::process::exit(1);
            }
        }
    }
    let conclusion = libtest_mimic::run(&arguments, trials);
    // `exit` runs no destructors, and the stores clean up when they are dropped.
    drop(suites);
    conclusion.exit()
}

fn trials_of(suite: &Arc<Suite>, before: &str, required: bool) -> Vec<Trial> {
    let opening = suite.clone();
    let opens = Trial::ignorable_test(format!("{before}store::opens"), move || {
        completion(opening.open(), required)
    });
    let cases = ALL.iter().map(|case| {
        let suite = suite.clone();
        Trial::ignorable_test(format!("{before}{}", case.name()), move || {
            // The test `store::opens` has already failed if a required store is missing.
            completion(suite.run_case(case), false)
        })
    });
    std::iter::once(opens).chain(cases).collect()
}

/// Returns the end of a trial. If a required store is missing, the trial fails.
///
/// # Errors
/// The reason of the failure.
pub fn completion(outcome: Outcome, required: bool) -> Result<Completion, Failed> {
    match outcome {
        Outcome::Ignored { reason, store_missing: true } if required => {
            Err(Failed::from(format!("{REQUIRE} names it, and it is missing: {reason}")))
        }
        Outcome::Passed => Ok(Completion::Completed),
        Outcome::Ignored { reason, .. } => Ok(Completion::ignored_with(reason)),
        Outcome::Failed(what) => Err(what.into()),
    }
}
