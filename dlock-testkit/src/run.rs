//! The test target's `main`.

use std::sync::Arc;

use libtest_mimic::{Arguments, Completion, Failed, Trial};

use crate::{
    Outcome, Store, Suite,
    all::ALL,
    child,
    require::{REQUIRE, is_required},
};

/// Most cases wait for leases to end, so that there are more of them than processors.
const THREADS: usize = 8;

/// Runs every case on this store as a test of its own, and exits.
///
/// In a child process of a cross-process case it serves that case instead.
pub fn run(store: impl Store) -> ! {
    run_each(vec![Box::new(store)])
}

/// [`run`] on one kind of store in several settings, each with a [`Store::setting`] of its own.
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
    // `exit` runs no destructors, and dropping the stores is their clean-up.
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
            // That the store is missing has failed above, once.
            completion(suite.try_case(case), false)
        })
    });
    std::iter::once(opens).chain(cases).collect()
}

/// The end of a trial. A missing store fails it if the store is required.
///
/// # Errors
/// The reason of a failure.
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
