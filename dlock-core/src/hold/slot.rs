//! The position of a hold in the books.
//!
//! All fields are read and written only under the lock of the books. That lock orders the accesses,
//! so they are relaxed. The fields are atomics because tasks on other threads share the hold, and
//! because a mutex for each hold would cost more bytes.

use crate::{
    Instant,
    sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed},
};

pub(super) struct Slot {
    /// The index in its list; `usize::MAX` while it is in none.
    at: AtomicUsize,
    /// The time at which the renewal task checks it, in nanoseconds.
    due: AtomicU64,
    /// Whether a renewal is in flight, so that no second one is sent.
    renewing: AtomicBool,
}

impl Slot {
    pub(super) const fn new() -> Self {
        Self {
            at: AtomicUsize::new(usize::MAX),
            due: AtomicU64::new(0),
            renewing: AtomicBool::new(false),
        }
    }

    pub(super) fn at(&self) -> Option<usize> {
        let at = self.at.load(Relaxed);
        (at != usize::MAX).then_some(at)
    }

    pub(super) fn set_at(&self, at: Option<usize>) {
        self.at.store(at.unwrap_or(usize::MAX), Relaxed);
    }

    pub(super) fn due(&self) -> Instant {
        Instant::from_nanos(self.due.load(Relaxed))
    }

    /// Sets the due time. Call it only while the hold is in no list, because `due` selects the
    /// list.
    pub(super) fn set_due(&self, due: Instant) {
        self.due.store(due.as_nanos(), Relaxed);
    }

    pub(super) fn is_renewing(&self) -> bool {
        self.renewing.load(Relaxed)
    }

    pub(super) fn set_renewing(&self, renewing: bool) {
        self.renewing.store(renewing, Relaxed);
    }
}
