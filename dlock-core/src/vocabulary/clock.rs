//! The holder's clock: monotonic, and counting while the machine sleeps.

use std::{fmt, time::Duration};

use crate::{ConfigIssue, Error, sync::time};

/// A point on a [`Clock`]. Comparable only with others of the same clock.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(u64);

impl Instant {
    /// The point this many nanoseconds after the clock's origin.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the clock's origin.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Later by `by`, or the last instant there is.
    #[must_use]
    pub fn saturating_add(self, by: Duration) -> Self {
        Self(self.0.saturating_add(nanos(by)))
    }

    /// Earlier by `by`, or the clock's origin.
    #[must_use]
    pub fn saturating_sub(self, by: Duration) -> Self {
        Self(self.0.saturating_sub(nanos(by)))
    }

    /// How long after `earlier` this is; zero when it is not after.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl fmt::Debug for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Instant({:?})", Duration::from_nanos(self.0))
    }
}

/// Where a process reads the time by which it stops believing in a lease.
///
/// A lease goes on running while a laptop lid is closed or a virtual machine is paused, but
/// `std::time::Instant` stands still then on Linux, so a holder would wake up believing in a
/// lease that ended long ago.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Clock {
    /// The system's clock that counts suspend: `CLOCK_BOOTTIME` on Linux and Android,
    /// `CLOCK_MONOTONIC` on Apple systems. Elsewhere `std::time::Instant`, which may not count it.
    Boot,
    /// tokio's clock, for deterministic tests under `tokio::time::pause`, and for a store that only
    /// its own process sees.
    Tokio {
        /// The origin.
        origin: tokio::time::Instant,
    },
}

impl Clock {
    /// tokio's clock, starting now.
    pub fn tokio() -> Self {
        Self::Tokio { origin: tokio::time::Instant::now() }
    }

    /// The clock of a store that no other process sees: tokio's, so that tests may pause it. It
    /// counts from the start of the system, so that a store that is made later begins later.
    #[cfg(not(dlock_schedules))]
    pub(crate) fn of_process() -> Self {
        let now = tokio::time::Instant::now();
        let up = Duration::from_nanos(boot_nanos());
        Self::Tokio { origin: now.checked_sub(up).unwrap_or(now) }
    }

    /// The clock that a scenario moves.
    #[cfg(dlock_schedules)]
    pub(crate) const fn of_process() -> Self {
        Self::Boot
    }

    /// Makes sure that tokio's timers follow this clock.
    ///
    /// # Errors
    /// `Config(Runtime)` for the system's clock while tokio's time is paused: timers would end
    /// without any lease having come closer to its end.
    pub(crate) fn check(self) -> Result<(), Error> {
        match self {
            Self::Boot if is_paused() => Err(paused()),
            _ => Ok(()),
        }
    }

    /// The time.
    pub fn now(self) -> Instant {
        match self {
            Self::Boot => Instant(boot_nanos()),
            Self::Tokio { origin } => Instant(nanos(origin.elapsed())),
        }
    }

    /// Waits until the clock shows `at`.
    ///
    /// After a suspend it may wake late by the time that was left before it: whoever waits checks
    /// the clock again.
    pub async fn sleep_until(self, at: Instant) {
        let left = at.since(self.now());
        // tokio's timer counts whole milliseconds and can't take more than about two years.
        time::sleep(left.min(Duration::from_secs(86_400 * 365))).await;
    }
}

/// The error of locks that run in real time where tokio's time does not.
pub(crate) fn paused() -> Error {
    Error::config(
        ConfigIssue::Runtime,
        "tokio's time is paused (start_paused, tokio::time::pause), but this store's leases run in \
         real time: test with memory: or Memory::with_clock(Clock::tokio()), or do not pause time",
    )
}

/// Whether tokio's time is paused here. tokio has no way to ask.
#[cfg(not(dlock_schedules))]
pub(crate) fn is_paused() -> bool {
    let tokio = tokio::time::Instant::now();
    let real = Clock::Boot.now();
    // Longer than any clock takes for a step, and shorter than anything that a store does.
    while Clock::Boot.now().since(real) < Duration::from_micros(1) {
        std::hint::spin_loop();
    }
    tokio::time::Instant::now() == tokio
}

#[cfg(dlock_schedules)]
pub(crate) const fn is_paused() -> bool {
    false
}

pub(crate) fn nanos(duration: Duration) -> u64 {
    duration.as_secs().saturating_mul(1_000_000_000).saturating_add(duration.subsec_nanos().into())
}

#[cfg(dlock_schedules)]
fn boot_nanos() -> u64 {
    nanos(time::now())
}

#[cfg(all(unix, not(dlock_schedules)))]
fn boot_nanos() -> u64 {
    use rustix::time::{ClockId, clock_gettime};

    #[cfg(any(target_os = "linux", target_os = "android"))]
    const CLOCK: ClockId = ClockId::Boottime;
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    const CLOCK: ClockId = ClockId::Monotonic;

    let time = clock_gettime(CLOCK);
    time.tv_sec.cast_unsigned().saturating_mul(1_000_000_000)
        + u64::try_from(time.tv_nsec).unwrap_or(0)
}

#[cfg(not(any(unix, dlock_schedules)))]
#[expect(clippy::disallowed_methods, reason = "the best clock that the standard library offers")]
fn boot_nanos() -> u64 {
    use std::sync::OnceLock;
    static ORIGIN: OnceLock<std::time::Instant> = OnceLock::new();
    nanos(ORIGIN.get_or_init(std::time::Instant::now).elapsed())
}

#[cfg(test)]
mod outside {
    use super::*;

    #[tokio::test]
    async fn a_pause_of_time_is_seen() {
        assert!(!is_paused());
        tokio::time::pause();
        assert!(is_paused());
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(is_paused());
        tokio::time::resume();
        assert!(!is_paused());
    }

    #[test]
    fn time_runs_outside_a_runtime() {
        assert!(!is_paused());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boot_clock_moves_forward() {
        let first = Clock::Boot.now();
        std::thread::sleep(Duration::from_millis(2));
        assert!(Clock::Boot.now().since(first) >= Duration::from_millis(2));
    }

    #[test]
    fn arithmetic_saturates() {
        let t = Instant::from_nanos(5);
        assert_eq!(t.saturating_add(Duration::MAX).as_nanos(), u64::MAX);
        assert_eq!(t.saturating_sub(Duration::MAX).as_nanos(), 0);
        assert_eq!(t.since(Instant::from_nanos(9)), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn tokio_clock_follows_paused_time() {
        let clock = Clock::tokio();
        let first = clock.now();
        clock.sleep_until(first.saturating_add(Duration::from_secs(3600))).await;
        assert_eq!(clock.now().since(first), Duration::from_secs(3600));
    }
}
