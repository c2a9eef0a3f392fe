//! The holder's clock: monotonic, and running while the machine sleeps.

use std::{fmt, time::Duration};

use crate::{ConfigIssue, Error, sync::time};

/// A point on a [`Clock`]. Compare it only with points of the same clock.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(u64);

impl Instant {
    /// Creates the point this many nanoseconds after the clock's origin.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Returns the nanoseconds since the clock's origin.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Returns the instant that is later by `by`, or the last instant.
    #[must_use]
    pub fn saturating_add(self, by: Duration) -> Self {
        Self(self.0.saturating_add(nanos(by)))
    }

    /// Returns the instant that is earlier by `by`, or the clock's origin.
    #[must_use]
    pub fn saturating_sub(self, by: Duration) -> Self {
        Self(self.0.saturating_sub(nanos(by)))
    }

    /// Returns the time since `earlier`; zero if this instant is not later.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl fmt::Debug for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Instant({:?})", Duration::from_nanos(self.0))
    }
}

/// The clock by which a process computes the local deadline of a lease.
///
/// A lease continues while a laptop lid is closed or a virtual machine is paused. On Linux,
/// `std::time::Instant` stops then, so a holder would wake up and still rely on a lease that
/// expired long ago.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Clock {
    /// The system's clock that counts suspend: `CLOCK_BOOTTIME` on Linux and Android,
    /// `CLOCK_MONOTONIC` on Apple systems. On other systems `std::time::Instant`, which may not
    /// count it.
    Boot,
    /// tokio's clock, for deterministic tests under `tokio::time::pause`, and for a store that only
    /// its own process uses.
    Tokio {
        /// The origin.
        origin: tokio::time::Instant,
    },
}

impl Clock {
    /// Returns tokio's clock, with its origin now.
    pub fn tokio() -> Self {
        Self::Tokio { origin: tokio::time::Instant::now() }
    }

    /// Returns the clock of a store that no other process uses: tokio's, so that tests may pause
    /// it. It counts from the start of the system, so that a store that is created later begins
    /// later.
    #[cfg(not(dlock_schedules))]
    pub(crate) fn of_process() -> Self {
        let now = tokio::time::Instant::now();
        let up = Duration::from_nanos(boot_nanos());
        Self::Tokio { origin: now.checked_sub(up).unwrap_or(now) }
    }

    /// The clock that a scenario advances.
    #[cfg(dlock_schedules)]
    pub(crate) const fn of_process() -> Self {
        Self::Boot
    }

    /// Checks that tokio's timers follow this clock.
    ///
    /// # Errors
    /// `Config(Runtime)` for the system's clock while tokio's time is paused: timers would fire
    /// although no lease is closer to its end.
    pub(crate) fn check(self) -> Result<(), Error> {
        match self {
            Self::Boot if is_paused() => Err(paused()),
            _ => Ok(()),
        }
    }

    /// Returns the current time.
    pub fn now(self) -> Instant {
        match self {
            Self::Boot => Instant(boot_nanos()),
            Self::Tokio { origin } => Instant(nanos(origin.elapsed())),
        }
    }

    /// Waits until the clock shows `at`.
    ///
    /// After a suspend it may wake up late, by the time that was left before the suspend: the
    /// caller checks the clock again.
    pub async fn sleep_until(self, at: Instant) {
        let left = at.since(self.now());
        // tokio's timer counts whole milliseconds and can't take more than about two years.
        time::sleep(left.min(Duration::from_secs(86_400 * 365))).await;
    }
}

/// Returns the error of locks that run in real time while tokio's time is paused.
pub(crate) fn paused() -> Error {
    Error::config(
        ConfigIssue::Runtime,
        "tokio's time is paused (start_paused, tokio::time::pause), but this store's leases run in \
         real time: test with memory: or Memory::with_clock(Clock::tokio()), or do not pause time",
    )
}

/// Returns whether tokio's time is paused here. tokio has no function for this.
#[cfg(not(any(dlock_schedules, dlock_sim)))]
pub(crate) fn is_paused() -> bool {
    let tokio = tokio::time::Instant::now();
    let real = Clock::Boot.now();
    // Longer than a tick of any clock, and shorter than any request to a store.
    while Clock::Boot.now().since(real) < Duration::from_micros(1) {
        std::hint::spin_loop();
    }
    tokio::time::Instant::now() == tokio
}

#[cfg(any(dlock_schedules, dlock_sim))]
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

#[cfg(dlock_sim)]
fn boot_nanos() -> u64 {
    crate::sim::clock()
}

#[cfg(all(unix, not(any(dlock_schedules, dlock_sim))))]
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

#[cfg(not(any(unix, dlock_schedules, dlock_sim)))]
#[expect(clippy::disallowed_methods, reason = "the best clock that the standard library offers")]
fn boot_nanos() -> u64 {
    use std::sync::OnceLock;
    static ORIGIN: OnceLock<std::time::Instant> = OnceLock::new();
    nanos(ORIGIN.get_or_init(std::time::Instant::now).elapsed())
}

#[cfg(test)]
mod runtime_tests {
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
