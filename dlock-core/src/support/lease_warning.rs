//! Configured leases that are longer than the store allows.
//!
//! A shorter lease does not harm locks that are renewed, so it is no error. But an application with
//! long leases expects holders to survive long outages, so it gets a warning.

use std::time::Duration;

use crate::{
    DynBackend, Finding, LockOptions,
    sync::atomic::{AtomicU64, Ordering},
};

/// The remedy for longer leases.
const REMEDY: &str = "use a shorter lease, or configure the store for longer leases (ZooKeeper: \
                      dlock.session_timeout of twice the lease, and maxSessionTimeout in zoo.cfg; \
                      etcd: dlock.session_timeout of one and a half times the lease)";

/// The longest lease that a warning has reported, in milliseconds.
#[derive(Default)]
pub(crate) struct LeaseWarning(AtomicU64);

/// Returns the lease that these options get, if it is shorter than the requested one.
fn clamped_lease(backend: &DynBackend, options: LockOptions) -> Option<Duration> {
    // The store keeps the lock-delay as well.
    let longest = backend.longest_lease().saturating_sub(options.lock_delay());
    (options.is_lease_set() && options.lease() > longest).then_some(longest)
}

impl LeaseWarning {
    /// Logs the warning, once for each longer lease.
    pub(crate) fn warn(&self, backend: &DynBackend, options: LockOptions) {
        let Some(lease) = clamped_lease(backend, options) else { return };
        let (backend, asked) = (backend.store(), options.lease());
        let millis = u64::try_from(asked.as_millis()).unwrap_or(u64::MAX);
        if self.0.fetch_max(millis, Ordering::Relaxed) < millis {
            tracing::warn!(
                target: "dlock",
                { backend, ?asked, ?lease, remedy = REMEDY },
                "lease shortened"
            );
        }
    }

    /// Returns the same as a finding, for an examination of the store.
    pub(crate) fn finding(backend: &DynBackend, options: LockOptions) -> Option<Finding> {
        let (lease, asked) = (clamped_lease(backend, options)?, options.lease());
        let found = format!("leases last {lease:?}, although {asked:?} was requested");
        Some(Finding::warning("lease", found, REMEDY))
    }
}
