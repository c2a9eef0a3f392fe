//! What the facade does on servers, and whether the texts of the repository are true. What of the
//! facade needs no server, `tests/facade` of the package `dlock` has.
//!
//! One binary, since each more is linked with all drivers. Nothing here changes what a whole process
//! shares; a test that has to is one of a binary of its own.

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
mod targets;
mod words;

use std::time::Duration;

use dlock_testlab::{Verdict, run_test};

/// Longer than any test takes, however busy the machine is.
const LONG: Duration = Duration::from_secs(300);

/// Runs a test that needs this store.
fn run(store: &str, test: impl Future<Output = Verdict>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    run_test(store, runtime.expect("a runtime"), LONG, test);
}
