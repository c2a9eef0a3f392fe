//! The clocks that are measured by.

use std::time::Duration;

use dlock::backend::Clock;
use rustix::time::{ClockId, clock_gettime};

use crate::Failure;

/// Nanoseconds on a clock that all processes of the machine share, so that one can say when it let
/// go of a lock and another when it got it.
pub(crate) fn now() -> u64 {
    Clock::Boot.now().as_nanos()
}

/// How long ago `earlier` was; zero when it is to come.
pub(crate) fn since(earlier: u64) -> Duration {
    between(earlier, now())
}

/// From `earlier` to `later`; zero when they are the other way round.
pub(crate) fn between(earlier: u64, later: u64) -> Duration {
    Duration::from_nanos(later.saturating_sub(earlier))
}

/// Later than now by `wait`.
pub(crate) fn after(wait: Duration) -> u64 {
    now().saturating_add(u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX))
}

/// Waits for a time that [`after`] gave, perhaps in another process.
pub(crate) async fn sleep_until(time: u64) {
    tokio::time::sleep(between(now(), time)).await;
}

/// Processor time that this thread has used.
pub(crate) fn thread_time() -> Result<Duration, Failure> {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Ok(Duration::new(u64::try_from(time.tv_sec)?, u32::try_from(time.tv_nsec)?))
}
