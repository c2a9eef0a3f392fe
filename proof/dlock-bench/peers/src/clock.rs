//! The clock that all processes of the machine share.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds on it.
pub(crate) fn now() -> u64 {
    let time = clock_gettime(ClockId::Boottime);
    let (seconds, nanos) = (u64::try_from(time.tv_sec), u64::try_from(time.tv_nsec));
    seconds.unwrap_or_default() * 1_000_000_000 + nanos.unwrap_or_default()
}

/// Waits until a time, which may come from another process.
pub(crate) async fn sleep_until(time: u64) {
    tokio::time::sleep(Duration::from_nanos(time.saturating_sub(now()))).await;
}
