//! Records what a child observes of itself: the times in which it did not run, and its open
//! resources.

use std::{sync::Arc, time::Duration};

use dlock_testkit::{Verdict, support::now};
use tokio::{runtime::Handle, time::sleep};

use super::{
    line::{What, When},
    log::Log,
};

/// The interval between two checks.
const EVERY: Duration = Duration::from_millis(5);
/// The delay of a check that is recorded as a time in which the process did not run.
const LATE: Duration = Duration::from_millis(5);
/// The working time after which a process counts as warm.
const WARM: Duration = Duration::from_secs(1);

/// Records each time in which timers did not fire: the process was stopped, its threads were
/// blocked, or the machine was too busy.
pub(super) async fn run(log: Arc<Log>) -> Verdict {
    loop {
        let since = now();
        sleep(EVERY).await;
        let at = now();
        if at.since(since) > EVERY + LATE {
            log.write_own(at, What::Late { since })?;
        }
    }
}

/// Records the resources that the process uses once it is warm.
pub(super) async fn early(log: Arc<Log>) -> Verdict {
    sleep(WARM).await;
    record_resources(&log, When::Early)
}

/// Records the resources that the process uses, if the system shows them.
pub(super) fn record_resources(log: &Log, when: When) -> Verdict {
    let count = |of: &str| std::fs::read_dir(of).map(Iterator::count);
    let (Ok(fds), Ok(threads)) = (count("/proc/self/fd"), count("/proc/self/task")) else {
        return Ok(());
    };
    let tasks = Handle::current().metrics().num_alive_tasks();
    log.write_own(now(), What::Uses { when, fds, tasks, threads })
}
