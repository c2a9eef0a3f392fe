//! The record of whether answered writes survive a crash of the database. That depends on the
//! database's settings, which may change while it is in use.
//!
//! # Concurrency
//!
//! `is_durable` and `due` order nothing else, so their accesses are relaxed. Every task that reads
//! the settings may write `is_durable`, and the swap lets one of them warn. Two calls of `used` may
//! both see that a check is due. Then the task is woken twice and checks once, since `check_due`
//! keeps one notification.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use dlock_core::{Clock, Exclusion, Guarantees, Instant};
use tokio::sync::Notify;

use super::fault::Fault;

/// How often the settings are read again while the database is used. Another connection reads them,
/// so no operation pays a round trip.
const REREAD: Duration = Duration::from_secs(10);

/// The result of all checks so far, shared by all tasks. After a failed check, the guarantee is
/// never promised again.
#[derive(Clone, Debug)]
pub(crate) struct DurabilityMonitor(Arc<DurabilityState>);

#[derive(Debug)]
struct DurabilityState {
    is_durable: AtomicBool,
    /// The time of the next check, in nanoseconds of the clock.
    due: AtomicU64,
    check_due: Notify,
}

impl DurabilityMonitor {
    pub(crate) fn new(is_durable: bool) -> Self {
        let (is_durable, due, check_due) =
            (AtomicBool::new(is_durable), AtomicU64::new(0), Notify::new());
        let this = Self(Arc::new(DurabilityState { is_durable, due, check_due }));
        this.put_off(Clock::Boot.now());
        this
    }

    /// Returns the guarantees of the database, reduced if writes may be lost.
    pub(crate) fn promised(&self, best: Guarantees) -> Guarantees {
        match self.0.is_durable.load(Ordering::Relaxed) {
            true => best,
            false => best.with_exclusion(Exclusion::Nothing),
        }
    }

    /// Records the current settings.
    pub(crate) fn record(&self, is_durable: bool) {
        if !is_durable && self.0.is_durable.swap(false, Ordering::Relaxed) {
            tracing::warn!(
                target: "dlock",
                "server settings changed: a crash may lose the latest grants; run dlock doctor, \
                 restore the setting it names, and reopen the store"
            );
        }
    }

    /// Records the result of a check.
    pub(crate) fn record_check(&self, is_durable: Result<bool, Fault>) {
        match is_durable {
            Ok(is_durable) => self.record(is_durable),
            Err(fault) => {
                tracing::debug!(target: "dlock", error = %fault.error, "reading the server settings failed");
            }
        }
    }

    /// Called after each batch. Wakes the task that checks the settings, if a check is due.
    pub(crate) fn used(&self) {
        let now = Clock::Boot.now();
        let is_due = self.0.due.load(Ordering::Relaxed) <= now.as_nanos();
        if is_due && self.0.is_durable.load(Ordering::Relaxed) {
            self.put_off(now);
            self.0.check_due.notify_one();
        }
    }

    /// Waits until a check of the settings is due.
    pub(crate) async fn due(&self) {
        self.0.check_due.notified().await;
    }

    fn put_off(&self, now: Instant) {
        self.0.due.store(now.saturating_add(REREAD).as_nanos(), Ordering::Relaxed);
    }
}
