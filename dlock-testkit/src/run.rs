//! The test target's `main`.

use std::sync::Arc;

use libtest_mimic::{Arguments, Completion, Failed, Trial};

use crate::{Outcome, Store, Suite, all::ALL, child};

/// The servers whose absence is a failure, separated by commas.
const REQUIRE: &str = "DLOCK_TEST_REQUIRE";

/// Most cases wait for leases to end, so that there are more of them than processors.
const THREADS: usize = 8;

/// Runs every case on this store as a test of its own, and exits.
///
/// In a child process of a cross-process case it serves that case instead.
pub fn run(store: impl Store) -> ! {
    if child::is_one() {
        child::serve(&store);
    }
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(THREADS);
    let required = is_required(store.name(), std::env::var(REQUIRE).ok().as_deref());
    let suite = match Suite::new(store) {
        Ok(suite) => Arc::new(suite),
        Err(error) => {
            eprintln!("no runtime: {error}");
            std::process::exit(1);
        }
    };
    let opening = suite.clone();
    let mut trials = vec![Trial::ignorable_test("store::opens", move || match opening.open() {
        Outcome::Ignored { reason, store_missing: true } if required => {
            Err(Failed::from(format!("{REQUIRE} names it, and it is missing: {reason}")))
        }
        outcome => completion(outcome),
    })];
    trials.extend(ALL.iter().map(|case| {
        let suite = suite.clone();
        Trial::ignorable_test(case.name(), move || completion(suite.try_case(case)))
    }));
    let conclusion = libtest_mimic::run(&arguments, trials);
    // `exit` runs no destructors, and dropping the store is its clean-up.
    drop(suite);
    conclusion.exit()
}

fn completion(outcome: Outcome) -> Result<Completion, Failed> {
    match outcome {
        Outcome::Passed => Ok(Completion::Completed),
        Outcome::Ignored { reason, .. } => Ok(Completion::ignored_with(reason)),
        Outcome::Failed(what) => Err(what.into()),
    }
}

fn is_required(store: &str, list: Option<&str>) -> bool {
    list.unwrap_or_default().split(',').any(|word| word.trim() == store)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_listed_stores_are_required() {
        assert!(is_required("zk", Some("redis, zk")));
        assert!(!is_required("zk", Some("zookeeper")));
        assert!(!is_required("zk", None));
    }
}
