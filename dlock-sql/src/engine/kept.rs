//! Whether the database keeps over a crash what it has answered, which its settings decide, also those
//! that somebody changes while it is in use.
//!
//! # Concurrency
//!
//! `is_kept` and `due` stand for themselves, so their accesses are relaxed. Every reader of the settings
//! may write `is_kept`; the swap makes one of them warn. Two calls of `used` may both see that a look is
//! due: then the task is woken twice, and looks once, since the bell keeps one notice.

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

/// How often the settings are looked at again, while the database is used. It costs no operation a
/// round trip: another connection looks.
const REREAD: Duration = Duration::from_secs(10);

/// What was seen of it, shared by all that see something. What was worse once is not promised again.
#[derive(Clone, Debug)]
pub(crate) struct Kept(Arc<KeptState>);

#[derive(Debug)]
struct KeptState {
    is_kept: AtomicBool,
    /// When to look again, in nanoseconds of the clock.
    due: AtomicU64,
    bell: Notify,
}

impl Kept {
    pub(crate) fn new(is_kept: bool) -> Self {
        let (is_kept, due, bell) = (AtomicBool::new(is_kept), AtomicU64::new(0), Notify::new());
        let this = Self(Arc::new(KeptState { is_kept, due, bell }));
        this.put_off(Clock::Boot.now());
        this
    }

    /// Takes back from what the database promises at best what it does not keep.
    pub(crate) fn promised(&self, best: Guarantees) -> Guarantees {
        match self.0.is_kept.load(Ordering::Relaxed) {
            true => best,
            false => best.with_exclusion(Exclusion::Nothing),
        }
    }

    /// Books what its settings are now.
    pub(crate) fn saw(&self, keeps: bool) {
        if !keeps && self.0.is_kept.swap(false, Ordering::Relaxed) {
            tracing::warn!(
                target: "dlock",
                "server settings changed: a crash may lose the latest grants; run dlock doctor, \
                 restore the setting it names, and reopen the store"
            );
        }
    }

    /// Books what a look at its settings came to.
    pub(crate) fn looked(&self, keeps: Result<bool, Fault>) {
        match keeps {
            Ok(keeps) => self.saw(keeps),
            Err(fault) => {
                tracing::debug!(target: "dlock", error = %fault.error, "reading the server settings failed");
            }
        }
    }

    /// Something was done: has the settings looked at, when it is time.
    pub(crate) fn used(&self) {
        let now = Clock::Boot.now();
        let is_due = self.0.due.load(Ordering::Relaxed) <= now.as_nanos();
        if is_due && self.0.is_kept.load(Ordering::Relaxed) {
            self.put_off(now);
            self.0.bell.notify_one();
        }
    }

    /// Ends when it is time to look at the settings.
    pub(crate) async fn is_due(&self) {
        self.0.bell.notified().await;
    }

    fn put_off(&self, now: Instant) {
        self.0.due.store(now.saturating_add(REREAD).as_nanos(), Ordering::Relaxed);
    }
}
