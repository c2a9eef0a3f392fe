//! What a child sees of itself: when it did not run, and what it has open.

use std::{sync::Arc, time::Duration};

use dlock_testkit::{Verdict, support::now};
use tokio::{runtime::Handle, time::sleep};

use super::{
    line::{What, When},
    log::Log,
};

/// How often it looks.
const EVERY: Duration = Duration::from_millis(5);
/// How much later than it wanted to it may run before it says so.
const LATE: Duration = Duration::from_millis(5);
/// After how much of its work it is said to be warm.
const WARM: Duration = Duration::from_secs(1);

/// Writes down each time in which timers did not run: the process was stopped, its threads were
/// blocked, or the machine was too busy.
pub(super) async fn keep(log: Arc<Log>) -> Verdict {
    loop {
        let since = now();
        sleep(EVERY).await;
        let at = now();
        if at.since(since) > EVERY + LATE {
            log.write_own(at, What::Late { since })?;
        }
    }
}

/// Says what the process uses once it is warm.
pub(super) async fn early(log: Arc<Log>) -> Verdict {
    sleep(WARM).await;
    look(&log, When::Early)
}

/// Says what the process uses. Nothing where the system does not tell.
pub(super) fn look(log: &Log, when: When) -> Verdict {
    let count = |of: &str| std::fs::read_dir(of).map(Iterator::count);
    let (Ok(fds), Ok(threads)) = (count("/proc/self/fd"), count("/proc/self/task")) else {
        return Ok(());
    };
    let tasks = Handle::current().metrics().num_alive_tasks();
    log.write_own(now(), What::Uses { when, fds, tasks, threads })
}
