//! Tasks of one process that want the same lock. One of them holds it or acquires it (the local
//! leader), and the others wait in the queue.
//!
//! The queue hands off a hold of any type. Other modules decide for how long, and send the
//! requests. No function here blocks: a task joins with its waker, takes its turn, or leaves.
//!
//! # Concurrency
//!
//! | `flags` | means |
//! |---|---|
//! | 0 | no task of this process holds the lock or acquires it |
//! | `BUSY` | one task does, and no other waits |
//! | `BUSY + QUEUED` | one task does, and others may wait in the queue |
//!
//! - Without access to the queue, `flags` changes from 0 to `BUSY` (`try_begin`) and back
//!   (`pass_leader_role`), by compare-and-swap with acquire and release. So the next leader sees
//!   all writes of the last one.
//! - **`QUEUED` is set and cleared under the mutex, and set only while `BUSY` is.** The swap from
//!   `BUSY` to 0 fails while `QUEUED` is set, and a task sets `QUEUED` before it joins. So either
//!   the leader that stops sees the queue and serves it, or the joining task sees that nobody leads
//!   and becomes the leader. A task is never left in a queue that no task serves
//!   (`schedules/hand_off.rs`; `proof/dlock-models/src/hand_off.rs`).
//! - The other flags are hints, and relaxed: `contended` selects a size, `asked` and `warned`
//!   select a message. `may_have_outage` is written under the mutex. It says that the outage there
//!   may not be empty; the first check of it is without the mutex, so that the usual path skips the
//!   mutex.

mod waiters;

use std::{
    fmt,
    sync::{Arc, Weak},
    task::Waker,
};

use self::waiters::WaitQueue;
use crate::{
    Error, FencingToken, Instant, LockName, LockOptions,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU8, Ordering},
    },
};

#[cfg(test)]
mod tests;

/// The tasks of this process that want one lock with one set of options. They hand off an `H`.
pub(crate) struct LocalQueue<H> {
    name: LockName,
    options: Arc<LockOptions>,
    flags: AtomicU8,
    /// Whether a task has joined since the last claim was made.
    contended: AtomicBool,
    /// Whether the [`Outage`] may be non-empty.
    may_have_outage: AtomicBool,
    /// Whether the leader waits for an answer of the store.
    asked: AtomicBool,
    /// Whether the warning that tasks wait here for a lock of their own process was logged.
    warned: AtomicBool,
    members: Mutex<Members<H>>,
}

struct Members<H> {
    /// The hold that was granted last.
    last: Weak<H>,
    /// Allocated when the first task has to wait, or at the first failure of the store.
    waiters: Option<Box<Waiters<H>>>,
}

/// The waiting tasks, and the outage that they share.
struct Waiters<H> {
    queue: WaitQueue<Turn<H>>,
    outage: Outage,
}

const BUSY: u8 = 1;
const QUEUED: u8 = 2;

/// The turn of a waiting task. A task that no longer needs it hands it to the next.
pub(crate) enum Turn<H> {
    /// A hold, with the token for this task.
    HandedOff(Arc<H>, FencingToken),
    /// The right to acquire the lock from the store, and then to hold it.
    Leader,
    /// The leader role, and the error with which this task fails: the last leader has retried for a
    /// whole lease, and this task has waited for all of that time.
    GivenUp(Error),
    /// No lock: the runtime that would renew it has ended.
    Failed(Error),
}

/// The right to acquire the lock from the store for this process, and then to hold it. If it is
/// dropped, the next task gets it.
pub(crate) struct LeaderRole<H>(Option<Arc<LocalQueue<H>>>);

impl<H> LeaderRole<H> {
    /// Creates the leader role, which the caller has from `try_begin`, from its turn, or from a
    /// hold that it ended.
    pub(crate) fn of(queue: &Arc<LocalQueue<H>>) -> Self {
        Self(Some(Arc::clone(queue)))
    }

    /// Moves the leader role to the hold, because the store has granted the lock. From now on the
    /// end of the hold hands the leader role to the next task.
    pub(crate) fn goes_with_the_hold(mut self) {
        self.0 = None;
    }

    /// Returns whether a task of this process waits for it.
    pub(crate) fn is_wanted(&self) -> bool {
        self.0.as_ref().is_some_and(|queue| queue.has_queue())
    }
}

impl<H> Drop for LeaderRole<H> {
    fn drop(&mut self) {
        if let Some(queue) = self.0.take() {
            queue.pass_leader_role();
        }
    }
}

impl<H> LocalQueue<H> {
    pub(crate) fn new(name: &LockName, options: &Arc<LockOptions>) -> Self {
        Self {
            name: name.clone(),
            options: Arc::clone(options),
            flags: AtomicU8::new(0),
            contended: AtomicBool::new(false),
            may_have_outage: AtomicBool::new(false),
            asked: AtomicBool::new(false),
            warned: AtomicBool::new(false),
            members: Mutex::new(Members { last: Weak::new(), waiters: None }),
        }
    }

    pub(crate) fn name(&self) -> &LockName {
        &self.name
    }

    pub(crate) fn options(&self) -> &LockOptions {
        &self.options
    }

    /// Takes the leader role if no task has it.
    pub(crate) fn try_begin(&self) -> bool {
        // A load first is cheaper if many tasks wait.
        self.flags.load(Ordering::Relaxed) == 0
            && self.flags.compare_exchange(0, BUSY, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Joins the queue with this waker. Returns `None`, and the caller has the leader role, if
    /// nobody leads by now.
    pub(crate) fn join(&self, waker: &Waker) -> Option<u64> {
        let mut members = self.members.lock();
        // The leader may stop at any time, without the mutex. So retry until one of the two swaps
        // succeeds. `QUEUED` can't be cleared meanwhile, since that takes the mutex.
        while !self.has_queue() {
            if self.try_begin() {
                self.forget_outage(&mut members);
                return None;
            }
            let order = Ordering::AcqRel;
            let _ = self.flags.compare_exchange(BUSY, BUSY | QUEUED, order, Ordering::Relaxed);
        }
        self.contended.store(true, Ordering::Relaxed);
        Some(members.waiters().queue.join(waker))
    }

    /// Returns the turn of the task with this ticket, once it has one. Until then it waits with
    /// this waker.
    pub(crate) fn take(&self, ticket: u64, waker: &Waker) -> Option<Turn<H>> {
        let mut members = self.members.lock();
        let waiters = members.waiters.as_mut()?;
        let turn = waiters.queue.take(ticket, waker)?;
        Some(match (turn, waiters.outage.given_up(ticket)) {
            (Turn::Leader, Some(error)) => Turn::GivenUp(error),
            (turn, _) => turn,
        })
    }

    /// Removes the task with this ticket, which stops waiting. If it had a turn by then, the caller
    /// hands it to the next task.
    pub(crate) fn leave(&self, ticket: u64) -> Option<Turn<H>> {
        let mut members = self.members.lock();
        let waiters = members.waiters.as_mut()?;
        let turn = waiters.queue.leave(ticket);
        self.clear_queued(&waiters.queue);
        turn
    }

    /// Gives this turn to the first waiting task. Returns false if no task waits or the turn is
    /// `None`.
    pub(crate) fn give(&self, turn: impl FnOnce() -> Option<Turn<H>>) -> bool {
        let mut members = self.members.lock();
        let queue = members.waiters.as_mut().map(|waiters| &mut waiters.queue);
        let Some(queue) = queue.filter(|queue| !queue.is_empty()) else {
            return false;
        };
        // The turn is created under the mutex, so that no token is taken for a task that has left.
        let first = turn().and_then(|turn| queue.give(turn));
        self.clear_queued(queue);
        drop(members);
        first.map(Waker::wake).is_some()
    }

    /// Makes all waiting tasks fail.
    pub(crate) fn fail_all(&self, why: impl Fn() -> Error) {
        let mut members = self.members.lock();
        let Some(waiters) = members.waiters.as_mut() else { return };
        let mut wakers = Vec::new();
        while let Some(waker) = waiters.queue.give(Turn::Failed(why())) {
            wakers.push(waker);
        }
        self.clear_queued(&waiters.queue);
        drop(members);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Clears `QUEUED` if the queue is empty. The caller has the mutex.
    fn clear_queued(&self, queue: &WaitQueue<Turn<H>>) {
        if queue.is_empty() {
            self.flags.fetch_and(!QUEUED, Ordering::AcqRel);
        }
    }

    /// Makes the next task the leader, or clears `BUSY` if no task waits.
    pub(crate) fn pass_leader_role(&self) {
        // Between the two attempts a task may join or the last one may leave. So both are repeated
        // until one succeeds.
        loop {
            let idle = self.flags.compare_exchange(BUSY, 0, Ordering::AcqRel, Ordering::Relaxed);
            if idle.is_ok() || self.give(|| Some(Turn::Leader)) {
                return;
            }
            // No task has the leader role, so it can't be handed on.
            if self.flags.load(Ordering::Acquire) & BUSY == 0 {
                return;
            }
        }
    }

    pub(crate) fn has_queue(&self) -> bool {
        self.flags.load(Ordering::Acquire) & QUEUED != 0
    }

    /// Returns the number of tasks that wait.
    pub(crate) fn len(&self) -> usize {
        self.members.lock().waiters.as_ref().map_or(0, |waiters| waiters.queue.len())
    }

    /// Returns whether a task has joined since the last call.
    pub(crate) fn was_joined(&self) -> bool {
        self.contended.load(Ordering::Relaxed) && {
            self.contended.store(false, Ordering::Relaxed);
            true
        }
    }

    /// Records the hold that the store has granted.
    pub(crate) fn remember(&self, hold: &Arc<H>) {
        let mut members = self.members.lock();
        self.forget_outage(&mut members);
        members.last = Arc::downgrade(hold);
    }

    /// Returns the hold that the store granted last, if it still exists.
    pub(crate) fn last(&self) -> Option<Arc<H>> {
        self.members.lock().last.upgrade()
    }

    /// Returns true once: the caller then logs the warning that this process waits for its own
    /// lock.
    pub(crate) fn warns(&self) -> bool {
        !self.warned.swap(true, Ordering::Relaxed)
    }

    /// Records that a request of the leader has failed. Returns when the outage began.
    pub(crate) fn store_failed(&self, now: Instant, error: &Error) -> Instant {
        let mut members = self.members.lock();
        self.may_have_outage.store(true, Ordering::Relaxed);
        members.waiters().outage.failed(now, error)
    }

    /// Records that a request of the leader was sent, or was answered.
    pub(crate) fn set_asked(&self, asked: bool) {
        self.asked.store(asked, Ordering::Relaxed);
    }

    pub(crate) fn is_asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed)
    }

    /// Returns the last failure of the store, if it has not answered since.
    pub(crate) fn last_failure(&self) -> Option<Error> {
        self.members.lock().waiters.as_ref()?.outage.last()
    }

    /// Records that the leader has retried for a whole lease, and that all waiting tasks have
    /// waited with it.
    pub(crate) fn give_up(&self, error: &Error) {
        let mut members = self.members.lock();
        let waiters = members.waiters();
        waiters.outage = Outage::over(waiters.queue.last_ticket(), error);
        self.may_have_outage.store(true, Ordering::Relaxed);
    }

    /// Records that the store has answered.
    pub(crate) fn store_is_back(&self) {
        if self.may_have_outage.load(Ordering::Relaxed) {
            self.forget_outage(&mut self.members.lock());
        }
    }

    fn forget_outage(&self, members: &mut Members<H>) {
        if self.may_have_outage.load(Ordering::Relaxed) {
            self.may_have_outage.store(false, Ordering::Relaxed);
            if let Some(waiters) = &mut members.waiters {
                waiters.outage = Outage::default();
            }
        }
    }
}

impl<H> Members<H> {
    fn waiters(&mut self) -> &mut Waiters<H> {
        self.waiters.get_or_insert_with(|| {
            Box::new(Waiters { queue: WaitQueue::default(), outage: Outage::default() })
        })
    }
}

impl<H> fmt::Debug for LocalQueue<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let waiting = self.len();
        f.debug_struct("LocalQueue")
            .field("name", &self.name)
            .field("busy", &(self.flags.load(Ordering::Relaxed) & BUSY != 0))
            .field("waiting", &waiting)
            .finish_non_exhaustive()
    }
}

/// An outage of the store, as the tasks that queue for one name see it. It is empty while the store
/// answers, and changes only under the mutex of its queue.
///
/// The local leader retries for one lease. If each leader counted from its own start, the last task
/// would fail after one lease for each task. So the next leader continues the count of the last one.
/// When the lease is over, all tasks that waited until then fail with its error.
#[derive(Default)]
struct Outage {
    since: Option<Instant>,
    /// The last error.
    last: Option<Error>,
    /// The error of the last leader that gave up after a whole lease, and the ticket of the task
    /// that was last in the queue at that time.
    given_up: Option<(u64, Error)>,
}

impl Outage {
    /// Creates the record after a leader has retried for a whole lease. All tasks up to this ticket
    /// have waited with it. Tasks that join later have a whole lease.
    pub(super) fn over(last_ticket: u64, error: &Error) -> Self {
        let given_up = Some((last_ticket, error.clone()));
        Self { since: None, last: Some(error.clone()), given_up }
    }

    /// Records a failure of the store, and returns when the outage began.
    pub(super) fn failed(&mut self, now: Instant, error: &Error) -> Instant {
        self.last = Some(error.clone());
        *self.since.get_or_insert(now)
    }

    pub(super) fn last(&self) -> Option<Error> {
        self.last.clone()
    }

    /// Returns the error of the leader that gave up while the task with this ticket waited.
    pub(super) fn given_up(&self, ticket: u64) -> Option<Error> {
        let (last, error) = self.given_up.as_ref()?;
        (ticket <= *last).then(|| error.clone())
    }
}
