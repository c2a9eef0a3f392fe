//! The time for which a holder relies on a lease. The store keeps the lease a little longer, plus
//! the lock-delay.
//!
//! A lease counts from before its request was sent, and the store counts it from when it executes
//! the request, which is later. So the local deadline comes before the end of the lease in the
//! store, whatever the network delays are.

use std::time::Duration;

use crate::{ConfigIssue, Error, Instant, LockOptions};

/// Returns the lease to request: the configured lease plus the lock-delay, or the longest that the
/// store supports.
///
/// # Errors
/// `Config(Lease)` if the lock-delay leaves too short a lease for the holder.
pub(crate) fn stored(options: LockOptions, longest: Duration) -> Result<Duration, Error> {
    let (delay, whole) = (options.lock_delay(), options.lease() + options.lock_delay());
    let stored = whole.min(longest);
    if !delay.is_zero() && holder_lease(stored, delay) < LockOptions::MIN_LEASE {
        return Err(Error::config(
            ConfigIssue::Lease,
            format!(
                "this store keeps a lock for at most {longest:?}, and a lock-delay of {delay:?} \
                 leaves less than {:?} of it for the lease: use a shorter delay, or configure the \
                 store for longer leases",
                LockOptions::MIN_LEASE
            ),
        ));
    }
    Ok(stored)
}

/// Returns the lease on which the holder relies, if the store keeps it for `stored`.
pub(crate) fn holder_lease(stored: Duration, delay: Duration) -> Duration {
    stored.saturating_sub(delay)
}

/// Returns the local deadline of a lease that began at `since` or later: 1 % earlier, for clocks
/// that run at different rates, and another 10 ms, for the store's tick and the holder's own
/// delays.
pub(crate) fn valid_until(since: Instant, lease: Duration) -> Instant {
    #[cfg(dlock_sim)]
    if crate::sim::has_mistake("no-margin") {
        return since.saturating_add(lease);
    }
    since.saturating_add(lease).saturating_sub(margin(lease))
}

/// Returns the time between the local deadline and the end of the lease.
pub(crate) fn margin(lease: Duration) -> Duration {
    lease / 100 + Duration::from_millis(10)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;

    fn options(lease: u64, delay: u64) -> LockOptions {
        LockOptions::new()
            .with_lease(Duration::from_millis(lease))
            .with_lock_delay(Duration::from_millis(delay))
    }

    #[test]
    fn the_stored_lease_includes_the_lock_delay() {
        let all = stored(options(3000, 1000), Duration::MAX).unwrap();
        assert_eq!(all, Duration::from_secs(4));
        assert_eq!(holder_lease(all, Duration::from_secs(1)), Duration::from_secs(3));
    }

    #[test]
    fn a_short_store_shortens_the_lease_and_not_the_delay() {
        let longest = Duration::from_secs(2);
        assert_eq!(stored(options(3000, 1000), longest).unwrap(), longest);
        let error = stored(options(3000, 1950), longest).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config(ConfigIssue::Lease));
        assert!(error.to_string().contains("shorter delay"), "{error}");
    }
}
