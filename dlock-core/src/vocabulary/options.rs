//! The options of a lock: how it is acquired and renewed.

use std::{
    fmt,
    hash::{Hash, Hasher},
    time::Duration,
};

use crate::{ConfigIssue, Error};

/// The options of a lock: lease, lock-delay, renewal and wait.
///
/// ```
/// use std::time::Duration;
/// # mod dlock { pub use dlock_core::*; pub mod guard { pub use dlock_core::*; } }
/// use dlock::{LockOptions, guard::Renew};
/// let options = LockOptions::new()
///     .with_lease(Duration::from_secs(10))
///     .with_renew(Renew::For(Duration::from_secs(600)))
///     .with_wait(Duration::from_secs(5));
/// assert!(options.check().is_ok());
/// ```
#[derive(Clone, Copy)]
pub struct LockOptions {
    lease: Duration,
    /// Whether the program set the lease explicitly. It does not count in comparisons: options with
    /// an equal lease are equal, so that handles of one lock share their holds.
    is_lease_set: bool,
    lock_delay: Duration,
    renew: Renew,
    wait: Duration,
}

/// How long a lease is renewed while its guard lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Renew {
    /// Until the guard is released or dropped.
    Auto,
    /// For this long after the grant at most, so that a hanging holder loses the lock in the end.
    For(Duration),
    /// Never: the lock expires one lease after the grant.
    Never,
}

impl LockOptions {
    /// The shortest lease.
    pub const MIN_LEASE: Duration = Duration::from_millis(100);
    /// The longest lease.
    pub const MAX_LEASE: Duration = Duration::from_secs(24 * 60 * 60);

    /// Returns a lease of 30 s, renewed while the guard lives, and a wait without limit.
    pub const fn new() -> Self {
        Self {
            lease: Duration::from_secs(30),
            is_lease_set: false,
            lock_delay: Duration::ZERO,
            renew: Renew::Auto,
            wait: Duration::MAX,
        }
    }

    /// Sets the lease: how long the store keeps the lock for a holder that is dead or cut off.
    /// Between [`MIN_LEASE`](Self::MIN_LEASE) and [`MAX_LEASE`](Self::MAX_LEASE).
    ///
    /// If the store supports only shorter leases, it uses its
    /// [longest](crate::Backend::longest_lease). The warning `lease shortened` and
    /// [`Locks::examine`](crate::Locks::examine) report that. Renewal still works, but holders
    /// survive only shorter outages.
    #[must_use]
    pub const fn with_lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self.is_lease_set = true;
        self
    }

    /// Sets the lock-delay: if a lease expires because its holder died, hung or was cut off, the
    /// store grants the lock to nobody for this time. So the holder's writes in flight can reach
    /// the resource before the next holder writes there. The default is zero; the lock-delay and
    /// the lease together are at most [`MAX_LEASE`](Self::MAX_LEASE).
    ///
    /// Use it for resources that can't check a [`FencingToken`](crate::FencingToken). It protects
    /// against writes that are late by less than the lock-delay, and not against later ones.
    /// Releasing or dropping a guard states that no write is in flight: then the lock is free at
    /// once, even if it was lost before. The same applies to a session that the store ends early
    /// ([`SessionEnd`]).
    ///
    /// [`SessionEnd`]: crate::OrphanRelease::SessionEnd
    #[must_use]
    pub const fn with_lock_delay(mut self, delay: Duration) -> Self {
        self.lock_delay = delay;
        self
    }

    /// Sets the renewal.
    #[must_use]
    pub const fn with_renew(mut self, renew: Renew) -> Self {
        self.renew = renew;
        self
    }

    /// Sets the limit of the wait of `lock()`. Zero: one attempt. `Duration::MAX`: no limit.
    #[must_use]
    pub const fn with_wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// The lease.
    pub const fn lease(&self) -> Duration {
        self.lease
    }

    /// Whether the program set the lease, so that it is not the default.
    pub(crate) const fn is_lease_set(&self) -> bool {
        self.is_lease_set
    }

    /// The lock-delay.
    pub const fn lock_delay(&self) -> Duration {
        self.lock_delay
    }

    /// The renewal.
    pub const fn renew(&self) -> Renew {
        self.renew
    }

    /// The limit of the wait.
    pub const fn wait(&self) -> Duration {
        self.wait
    }

    /// Checks the values.
    ///
    /// # Errors
    /// `Config(Lease)` or `Config(Renewal)`, which names the range.
    pub fn check(&self) -> Result<(), Error> {
        let (lease, delay, renew) = (self.lease, self.lock_delay, self.renew);
        let (least, most) = (Self::MIN_LEASE, Self::MAX_LEASE);
        let refuse = |issue, why: String| Err(Error::config(issue, why));
        if lease < least || lease > most {
            return refuse(
                ConfigIssue::Lease,
                format!(
                    "a lease of {lease:?} is out of range: use {} to {}, long enough for a few \
                     lost round trips",
                    shown_duration(least),
                    shown_duration(most)
                ),
            );
        }
        if delay > most - lease {
            return refuse(
                ConfigIssue::Lease,
                format!(
                    "a lease of {lease:?} and a lock-delay of {delay:?} are too long together: use \
                     no more than {}",
                    shown_duration(most)
                ),
            );
        }
        match renew {
            Renew::For(limit) if limit < lease => refuse(
                ConfigIssue::Renewal,
                format!(
                    "renewal for {limit:?} is shorter than the lease of {lease:?}: use \
                     Renew::Never, a longer limit, or a shorter lease"
                ),
            ),
            _ => Ok(()),
        }
    }
}

impl Default for LockOptions {
    fn default() -> Self {
        Self::new()
    }
}

/// The values by which options differ.
type Key = (Duration, Duration, Renew, Duration);

impl LockOptions {
    const fn key(&self) -> Key {
        let Self { lease, is_lease_set: _, lock_delay, renew, wait } = *self;
        (lease, lock_delay, renew, wait)
    }
}

impl PartialEq for LockOptions {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for LockOptions {}

impl Hash for LockOptions {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key().hash(state);
    }
}

impl fmt::Debug for LockOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("LockOptions");
        shown.field("lease", &self.lease);
        shown.field("lock_delay", &self.lock_delay);
        shown.field("renew", &self.renew);
        if self.wait == Duration::MAX {
            shown.field("wait", &format_args!("for ever"));
        } else {
            shown.field("wait", &self.wait);
        }
        shown.finish()
    }
}

/// Returns a duration for a message, as a person would write it in a URL: `24h`, `10ms`.
pub(crate) fn shown_duration(time: Duration) -> String {
    match time.as_secs() {
        _ if time.subsec_nanos() > 0 => format!("{time:?}"),
        seconds if seconds > 0 && seconds % 3600 == 0 => format!("{}h", seconds / 3600),
        seconds if seconds > 0 && seconds % 60 == 0 => format!("{}m", seconds / 60),
        seconds => format!("{seconds}s"),
    }
}

#[cfg(test)]
mod limits {
    use super::*;

    #[test]
    fn the_default_lease_is_the_same_when_it_is_asked_for() {
        let options = LockOptions::new();
        let asked = options.with_lease(options.lease());
        assert_eq!(asked, options);
        assert!(asked.is_lease_set() && !options.is_lease_set());
    }

    #[test]
    fn a_wait_without_an_end_is_shown_as_that() {
        let shown = format!("{:?}", LockOptions::new());
        assert!(shown.contains("wait: for ever"), "{shown}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;

    #[test]
    fn leases_out_of_range_are_refused() {
        for lease in
            [Duration::ZERO, Duration::from_nanos(1), Duration::from_secs(86_401), Duration::MAX]
        {
            let error = LockOptions::new().with_lease(lease).check().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config(ConfigIssue::Lease));
            assert!(error.to_string().contains("100ms"), "{error}");
        }
    }

    #[test]
    fn a_lock_delay_that_makes_a_lease_too_long_is_refused() {
        let lease = Duration::from_secs(1);
        let options = |delay| LockOptions::new().with_lease(lease).with_lock_delay(delay);
        assert!(options(LockOptions::MAX_LEASE - lease).check().is_ok());
        for delay in [LockOptions::MAX_LEASE, Duration::MAX] {
            let error = options(delay).check().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config(ConfigIssue::Lease));
        }
    }

    #[test]
    fn renewal_shorter_than_the_lease_is_refused() {
        let options = LockOptions::new().with_renew(Renew::For(Duration::from_secs(1)));
        assert_eq!(options.check().unwrap_err().kind(), ErrorKind::Config(ConfigIssue::Renewal));
    }
}
