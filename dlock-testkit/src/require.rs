//! The stores that must not be missing.

use crate::{Outcome, Verdict};

/// The variable with the required stores, separated by commas.
pub(crate) const REQUIRE: &str = "DLOCK_TEST_REQUIRE";

/// Whether the tests fail if this store is missing.
pub fn is_required(store: &str) -> bool {
    is_listed(store, &std::env::var(REQUIRE).unwrap_or_default())
}

fn is_listed(store: &str, list: &str) -> bool {
    list.split(',').any(|word| word.trim() == store)
}

/// Ends a test that needs this store. A failure becomes a panic. A missing store becomes a panic if
/// `DLOCK_TEST_REQUIRE` lists it; otherwise the reason is printed and the test passes.
///
/// # Panics
/// If the test failed or a required store is missing, with the reason.
#[track_caller]
pub fn judge(store: &str, verdict: Verdict) {
    match Outcome::from(verdict) {
        Outcome::Passed => {}
        Outcome::Ignored { reason, store_missing: true } if is_required(store) => {
            panic!("{REQUIRE} names {store}, and it is missing: {reason}")
        }
        Outcome::Ignored { reason, .. } => println!("ignored: {reason}"),
        Outcome::Failed(what) => panic!("{what}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Stop;

    #[test]
    fn only_listed_stores_are_required() {
        assert!(is_listed("zk", "redis, zk"));
        assert!(!is_listed("zk", "zookeeper"));
        assert!(!is_listed("zk", ""));
    }

    #[test]
    #[should_panic(expected = "broken")]
    fn a_failure_is_a_panic() {
        judge("none", Err(Stop::failed("broken")));
    }

    #[test]
    fn a_missing_program_that_is_not_required_passes() {
        judge("none", Err(Stop::missing("not installed")));
    }
}
