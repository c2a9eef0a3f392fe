//! Configured leases that are longer than the store allows.
//!
//! To be shorter harms no lock that is renewed, so it is no error; but an application that asks for long
//! leases counts on outages that holders live through, and has to know.

use std::time::Duration;

use crate::{
    DynBackend, Finding, LockOptions,
    sync::atomic::{AtomicU64, Ordering},
};

/// How to get longer ones.
const REMEDY: &str = "use a shorter lease, or configure the store for longer leases (ZooKeeper: \
                      dlock.session_timeout of twice the lease, and maxSessionTimeout in zoo.cfg)";

/// The longest lease that was told of, in milliseconds.
#[derive(Default)]
pub(crate) struct Shortened(AtomicU64);

/// How long the leases become that these options ask for, if that is less.
fn shortened(backend: &DynBackend, options: LockOptions) -> Option<Duration> {
    // The store keeps the lock-delay as well.
    let longest = backend.longest_lease().saturating_sub(options.lock_delay());
    (options.is_lease_set() && options.lease() > longest).then_some(longest)
}

impl Shortened {
    /// Tells of it, once for each length.
    pub(crate) fn tell(&self, backend: &DynBackend, options: LockOptions) {
        let Some(lease) = shortened(backend, options) else { return };
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

    /// The same for somebody who examines the store.
    pub(crate) fn finding(backend: &DynBackend, options: LockOptions) -> Option<Finding> {
        let (lease, asked) = (shortened(backend, options)?, options.lease());
        let found = format!("leases last {lease:?}, although {asked:?} was requested");
        Some(Finding::warning("lease", found, REMEDY))
    }
}
