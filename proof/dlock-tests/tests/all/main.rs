//! Tests of the facade on servers, and of the documents of the repository. Tests of the facade that
//! need no server are in `tests/facade` of the package `dlock`.
//!
//! They share one binary, because each binary is linked with all drivers. No test here changes
//! state of the whole process; a test that has to do so needs a separate binary.

mod costs;
mod cycles;
mod events;
mod guarantees;
mod guide;
mod names;
mod options;
mod over_the_lock;
mod passwords;
mod printed;
mod redis;
mod remedies;
mod servers;
mod words;

use std::time::Duration;

use dlock_testlab::{Verdict, run_test};

/// Longer than any test takes, even on a busy machine.
const LONG: Duration = Duration::from_secs(300);

/// Runs a test that needs this store.
fn run(store: &str, test: impl Future<Output = Verdict>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    run_test(store, runtime.expect("a runtime"), LONG, test);
}
