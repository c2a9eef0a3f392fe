//! One claim of this client, from the first request to the end of its key.
//!
//! # Concurrency
//!
//! The task that creates, changes or deletes the key holds `stage` until the outcome is certain,
//! across awaits. So a release never misses a key whose creation is under way. The locks of the
//! other fields are held only for a moment, and taken after `stage`. That task sets `attached`, too:
//! before it creates the key, and after it has written the key again.

use std::{
    ops::Deref,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, Ordering},
    },
};

use dlock_core::{AcquireRequest, Mode, Note, session::Life};
use parking_lot::Mutex;

use crate::{
    client::{Bytes, FilterType, RangeRequest, Watch},
    connect::Link,
    key::{KeySlots, Keys, Kind, Slot, TOKENS},
    queue::Behind,
    record::Record,
};

/// A claim of a session.
pub(crate) struct OwnClaim {
    life: Life,
    /// The prefix of the lock's keys, and the key of this claim.
    pub(crate) prefix: String,
    pub(crate) key: Bytes,
    /// The number of its slot, which is free again when it is dropped.
    number: u32,
    slots: Arc<KeySlots>,
    is_retired: AtomicBool,
    /// The lease of the session when a deletion of its key was refused for the first time. 0 before.
    refused_in: AtomicI64,
    /// The lease of the session that its key has, or will have once it is created. 0 before.
    attached: AtomicI64,
    /// The watch of its own key from the time when it waited, until its guard takes it.
    watch: Mutex<Option<OwnWatch>>,
    note: Option<Note>,
    /// The state of the key.
    pub(crate) stage: tokio::sync::Mutex<Stage>,
}

/// The state of a claim's key, as far as this client knows.
#[derive(Clone, Debug)]
pub(crate) enum Stage {
    /// The key was not created yet.
    New,
    /// The key may exist: a creation was not answered, and then a read failed that would have shown
    /// the outcome. It will not be created any more.
    Doubtful,
    /// The key exists.
    There(Spot),
    /// The key was deleted.
    Gone,
}

/// A key of this client.
#[derive(Clone, Debug)]
pub(crate) struct Spot {
    /// The revision at which it was created, which is its place in the queue.
    pub(crate) created: i64,
    /// The revision of its last change.
    pub(crate) modified: i64,
    /// The key that the claim waits for, according to the last read.
    pub(crate) behind: Option<Behind>,
}

/// A watch of a claim's own key, on the connection with this number.
pub(crate) struct OwnWatch {
    pub(crate) link: u64,
    pub(crate) watch: Watch,
}

impl OwnClaim {
    pub(crate) fn new(
        request: &AcquireRequest,
        keys: &Keys,
        session: i64,
        slots: &Arc<KeySlots>,
    ) -> Self {
        let prefix = keys.prefix(&request.name);
        let number = slots.take(&prefix);
        Self {
            life: Life::new(request, TOKENS),
            key: Kind::of(request.mode).key(&prefix, Slot::of(session, number)).into(),
            prefix,
            number,
            slots: Arc::clone(slots),
            is_retired: AtomicBool::new(false),
            refused_in: AtomicI64::new(0),
            attached: AtomicI64::new(0),
            watch: Mutex::default(),
            note: request.note.clone(),
            stage: tokio::sync::Mutex::new(Stage::New),
        }
    }

    /// Returns the value of its key in this mode.
    pub(crate) fn value(&self, mode: Mode) -> Bytes {
        let (lease, note) = (self.lease(), self.note.clone());
        Record { mode, lease, claim: self.claim(), note, newer: None }.text().into()
    }

    /// Watches the end of its own key, which was created at this revision.
    pub(crate) fn watch_own(&self, link: &Link, created: i64) -> OwnWatch {
        let key = self.key.clone();
        let watch = link.client.watch(key, Bytes::new(), Some(FilterType::NoPut), created);
        OwnWatch { link: link.number, watch }
    }

    /// Keeps a watch of its own key, which has reported nothing, for its guard.
    pub(crate) fn keep_watch(&self, watch: OwnWatch) {
        *self.watch.lock() = Some(watch);
    }

    pub(crate) fn take_watch(&self) -> Option<OwnWatch> {
        self.watch.lock().take()
    }

    /// Returns the lease of the session that its key has, or will have.
    pub(crate) fn attached(&self) -> i64 {
        self.attached.load(Ordering::SeqCst)
    }

    pub(crate) fn set_attached(&self, lease: i64) {
        self.attached.store(lease, Ordering::SeqCst);
    }

    /// Retires its slot, so that it is not used again while its key may exist, or be deleted later.
    /// Returns whether it was retired before.
    pub(crate) fn retire(&self, is_retired: bool) -> bool {
        self.is_retired.swap(is_retired, Ordering::SeqCst)
    }

    /// Returns the lease of the session when a deletion of its key was refused for the first time.
    pub(crate) fn refused_in(&self) -> Option<i64> {
        Some(self.refused_in.load(Ordering::SeqCst)).filter(|lease| *lease != 0)
    }

    /// Records that a deletion of its key was refused.
    pub(crate) fn set_refused_in(&self, lease: i64) {
        let _ = self.refused_in.compare_exchange(0, lease, Ordering::SeqCst, Ordering::SeqCst);
    }
}

/// Returns the read of a claim's own key, with its value: without it, etcd 3.7 returns no lease.
pub(crate) fn own_key(claim: &OwnClaim) -> RangeRequest {
    RangeRequest { key: claim.key.clone(), ..Default::default() }
}

impl Deref for OwnClaim {
    type Target = Life;

    fn deref(&self) -> &Life {
        &self.life
    }
}

impl Drop for OwnClaim {
    fn drop(&mut self) {
        if !self.is_retired.load(Ordering::SeqCst) {
            self.slots.free(&self.prefix, self.number);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use dlock_core::{Instant, LockName};

    use super::*;
    use crate::key::token;

    fn claim(slots: &Arc<KeySlots>) -> OwnClaim {
        let (name, lease) = (LockName::new("x").unwrap(), Duration::from_secs(1));
        let request = AcquireRequest::new(name, Mode::Exclusive, lease).with_tokens(TOKENS + 1);
        OwnClaim::new(&request, &Keys::below("/dlock"), 7, slots)
    }

    #[test]
    fn tokens_of_two_claims_do_not_meet() {
        let (a, b) = (token(7).unwrap(), token(8).unwrap());
        assert_eq!(b.get() - a.get(), u64::from(TOKENS));
        let (grant, first) = claim(&Arc::default()).grant(a, Instant::from_nanos(0)).unwrap();
        assert_eq!((grant.token, grant.tokens, first), (a, TOKENS, true));
    }

    #[test]
    fn a_slot_is_used_again_unless_it_is_retired() {
        let slots = Arc::default();
        let number = claim(&slots).number;
        let again = claim(&slots);
        assert_eq!(again.number, number);
        again.retire(true);
        drop(again);
        assert_ne!(claim(&slots).number, number);
    }
}
