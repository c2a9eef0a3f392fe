//! The renewal queue of an engine under its lock, and the notifications of its changes.
//!
//! # Concurrency
//!
//! - The renewal queue, with the slot and the deadline of each hold in it, changes only under its
//!   mutex.
//! - **One critical section adds a hold and brings the next check forward.** The renewal task sets
//!   its next check under the same lock. So it can't set a later one after it missed this hold. If
//!   its current sleep is too long, `add` wakes it.
//! - **`remove` removes the hold, then loads `watched`. `until_empty` stores `watched`, then checks
//!   the renewal queue.** The mutex orders the two, so one sees the other.
//! - **The renewal task stores `stopped`, then fails the waiting tasks. A task joins its queue,
//!   then loads `stopped`.** So either its turn fails, or it sees that the renewals have ended. A
//!   store followed by a load of another field keeps its order only with `SeqCst`; the mutex of the
//!   queue is between them.
//! - **The renewal task stores `stopped`, then loads `parting` of each hold. `HoldRef::part` stores
//!   `parting`, then loads `stopped`.** So one of the two ends the hold, and `shutdown` never waits
//!   for a hold that no task will end.
//! - **`until_empty` and `until_stopped` register with their `Notify` before they check.** A change
//!   after the check then notifies a registered task.

use std::{sync::Arc, time::Duration};

use crate::{
    Clock, DynBackend, Instant, LockName, Mode,
    hold::{
        Hold,
        renewal_queue::{RenewalQueue, ShardOf},
    },
    sync::{
        Mutex, Notify,
        atomic::{AtomicBool, Ordering},
    },
};

pub(crate) struct SharedQueue {
    clock: Clock,
    queue: Mutex<RenewalQueue>,
    /// Wakes the renewal task. It is shared, because that task does not keep the engine alive while
    /// it sleeps.
    pub(super) wake: Arc<Notify>,
    removed: Notify,
    /// Wakes tasks at the end of the renewal task; otherwise they would wait for ever.
    ended: Notify,
    /// Whether `until_empty` has been called. Never cleared. Until then `remove` sends no
    /// notification, which is cheaper.
    watched: AtomicBool,
    stopped: AtomicBool,
}

impl SharedQueue {
    pub(super) fn new(clock: Clock) -> Self {
        Self {
            clock,
            queue: Mutex::default(),
            wake: Arc::default(),
            removed: Notify::new(),
            ended: Notify::new(),
            watched: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
        }
    }

    /// Adds a new hold. Returns true if a step of the store's clock has ended its lease meanwhile.
    pub(super) fn add(&self, hold: &Arc<Hold>, backend: &DynBackend) -> bool {
        let added = self.with(backend, |queue, shard| queue.add(hold, shard, || self.clock.now()));
        if added.sooner {
            self.wake.notify_one();
        }
        added.over
    }

    /// Removes a hold that has ended from the renewal queue.
    pub(super) fn remove(&self, hold: &Hold) {
        let removed = self.queue.lock().take(hold);
        drop(removed);
        if self.watched.load(Ordering::SeqCst) {
            self.removed.notify_waiters();
        }
    }

    /// Makes the renewal task check a hold now, or after the answer to a renewal that is in flight.
    pub(super) fn expedite(&self, hold: &Hold) {
        let now = self.clock.now();
        if self.queue.lock().expedite(hold, now) {
            self.wake.notify_one();
        }
    }

    /// Records the answer to a renewal that the renewal task did not send, which is a downgrade.
    pub(super) fn renewed(&self, hold: &Hold, sent: Instant, stored: Duration, of: &DynBackend) {
        self.with(of, |queue, shard| queue.renewed(hold, sent, stored, shard(hold.name())));
    }

    /// Runs a function on the renewal queue under its lock.
    pub(super) fn with<T>(
        &self,
        backend: &DynBackend,
        work: impl FnOnce(&mut RenewalQueue, ShardOf<'_>) -> T,
    ) -> T {
        work(&mut self.queue.lock(), &|name| backend.shard(name))
    }

    /// Returns all holds, for work without the lock.
    pub(super) fn all(&self) -> Vec<Arc<Hold>> {
        self.queue.lock().all().cloned().collect()
    }

    /// Returns the number of held locks. It visits each hold: for people and shutdown only.
    pub(crate) fn len(&self) -> usize {
        self.queue.lock().all().count()
    }

    /// Returns the number of held locks, and of those whose last renewal failed.
    pub(crate) fn count(&self) -> (usize, usize) {
        let queue = self.queue.lock();
        let running = queue.all().filter(|hold| hold.is_running());
        running.fold((0, 0), |(held, doubtful), hold| {
            (held + 1, doubtful + usize::from(hold.is_doubtful()))
        })
    }

    /// Waits until no lock is held.
    pub(super) async fn until_empty(&self) {
        loop {
            let mut removed = std::pin::pin!(self.removed.notified());
            removed.as_mut().enable();
            self.watched.store(true, Ordering::SeqCst);
            if self.len() == 0 {
                return;
            }
            removed.await;
        }
    }

    /// Returns how long this process has held the lock of this name, if it does. It visits at most
    /// a thousand holds: for messages only.
    pub(super) fn held_for(&self, name: &LockName) -> Option<Duration> {
        self.hold_of(name).map(|hold| self.clock.now().since(hold.granted_at()))
    }

    /// As `held_for`, but once for each hold, for the warning that this process waits for its own
    /// lock.
    pub(super) fn warns_held_for(&self, name: &LockName) -> Option<Duration> {
        let hold = self.hold_of(name).filter(|hold| hold.warns())?;
        Some(self.clock.now().since(hold.granted_at()))
    }

    /// Returns a hold of this name. One of permits is no reason for a wait: others may hold the rest
    /// of them, and tasks of one process often hold several.
    fn hold_of(&self, name: &LockName) -> Option<Arc<Hold>> {
        let queue = self.queue.lock();
        let is_whole = |hold: &Hold| !matches!(hold.mode(), Mode::Permits { .. });
        let mut some = queue.all().take(1000);
        some.find(|hold| hold.name() == name && hold.is_running() && is_whole(hold)).cloned()
    }

    /// Records that the renewal task has ended, with its runtime or with the last handle and guard.
    pub(super) fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
        self.ended.notify_waiters();
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::SeqCst)
    }

    /// Waits until the renewal task has ended.
    pub(super) async fn until_stopped(&self) {
        let mut ended = std::pin::pin!(self.ended.notified());
        ended.as_mut().enable();
        if !self.is_stopped() {
            ended.await;
        }
    }
}
