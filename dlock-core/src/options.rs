//! How a lock is taken and kept.

use std::time::Duration;

use crate::{ConfigIssue, Error};

/// How a lock is taken and kept: lease, renewal and wait.
///
/// ```
/// use std::time::Duration;
/// use dlock_core::{LockOptions, Renew};
/// let options = LockOptions::new()
///     .with_lease(Duration::from_secs(10))
///     .with_renew(Renew::For(Duration::from_secs(600)))
///     .with_wait(Duration::from_secs(5));
/// assert!(options.check().is_ok());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LockOptions {
    lease: Duration,
    renew: Renew,
    wait: Duration,
}

/// How long a lease is renewed while its guard lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Renew {
    /// Until the guard is released or dropped.
    Auto,
    /// Not beyond this long after the grant, so that a holder that hangs lets go in the end.
    For(Duration),
    /// Never: the lock ends one lease after the grant.
    Never,
}

impl LockOptions {
    /// The shortest lease.
    pub const MIN_LEASE: Duration = Duration::from_millis(100);
    /// The longest lease.
    pub const MAX_LEASE: Duration = Duration::from_secs(24 * 60 * 60);

    /// A lease of 30 s, renewed while the guard lives, and no end to the wait.
    pub const fn new() -> Self {
        Self { lease: Duration::from_secs(30), renew: Renew::Auto, wait: Duration::MAX }
    }

    /// With leases of this length: how long the store keeps the lock for a holder that is dead or
    /// cut off. Between [`MIN_LEASE`](Self::MIN_LEASE) and [`MAX_LEASE`](Self::MAX_LEASE).
    #[must_use]
    pub const fn with_lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// With this renewal.
    #[must_use]
    pub const fn with_renew(mut self, renew: Renew) -> Self {
        self.renew = renew;
        self
    }

    /// With this limit on how long `lock()` waits. Zero: one attempt. `Duration::MAX`: for ever.
    #[must_use]
    pub const fn with_wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// The lease.
    pub const fn lease(&self) -> Duration {
        self.lease
    }

    /// The renewal.
    pub const fn renew(&self) -> Renew {
        self.renew
    }

    /// The wait.
    pub const fn wait(&self) -> Duration {
        self.wait
    }

    /// Checks the values.
    ///
    /// # Errors
    /// `Config(Lease)` or `Config(Renewal)`, naming the range.
    pub fn check(&self) -> Result<(), Error> {
        if self.lease < Self::MIN_LEASE || self.lease > Self::MAX_LEASE {
            return Err(Error::config(
                ConfigIssue::Lease,
                format!(
                    "a lease of {:?} is out of range: use {:?} to {:?}, long enough for a few lost \
                     round trips",
                    self.lease,
                    Self::MIN_LEASE,
                    Self::MAX_LEASE
                ),
            ));
        }
        match self.renew {
            Renew::For(limit) if limit < self.lease => Err(Error::config(
                ConfigIssue::Renewal,
                format!(
                    "renewal for {limit:?} is shorter than the lease of {:?}: use Renew::Never, a \
                     longer limit, or a shorter lease",
                    self.lease
                ),
            )),
            _ => Ok(()),
        }
    }
}

impl Default for LockOptions {
    fn default() -> Self {
        Self::new()
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
    fn renewal_shorter_than_the_lease_is_refused() {
        let options = LockOptions::new().with_renew(Renew::For(Duration::from_secs(1)));
        assert_eq!(options.check().unwrap_err().kind(), ErrorKind::Config(ConfigIssue::Renewal));
    }
}
