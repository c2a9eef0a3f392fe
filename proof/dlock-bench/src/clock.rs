//! The clocks of the measurements.

use std::time::Duration;

use dlock::backend::Clock;
use rustix::time::{ClockId, clock_gettime};

use crate::Failure;

/// Returns nanoseconds on a clock that all processes of the machine share, so that the release in
/// one process and the grant in another can be compared.
pub(crate) fn now() -> u64 {
    Clock::Boot.now().as_nanos()
}

/// Returns the time since `earlier`; zero if that is in the future.
pub(crate) fn since(earlier: u64) -> Duration {
    between(earlier, now())
}

/// Returns the time from `earlier` to `later`; zero if they are in reverse order.
pub(crate) fn between(earlier: u64, later: u64) -> Duration {
    Duration::from_nanos(later.saturating_sub(earlier))
}

/// Returns the time that is `wait` after now.
pub(crate) fn after(wait: Duration) -> u64 {
    now().saturating_add(u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX))
}

/// Waits until a time that [`after`] returned, perhaps in another process.
pub(crate) async fn sleep_until(time: u64) {
    tokio::time::sleep(between(now(), time)).await;
}

/// Returns the processor time that this thread has used.
pub(crate) fn thread_time() -> Result<Duration, Failure> {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Ok(Duration::new(u64::try_from(time.tv_sec)?, u32::try_from(time.tv_nsec)?))
}
