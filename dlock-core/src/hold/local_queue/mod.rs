//! Tasks of one process that want the same lock: one of them has it or is on the way to it, and the
//! others wait in line.
//!
//! What is handed on is of any type; how long it is handed on, and what the store is asked, is for
//! others to say. Nothing here waits: a task joins with its waker, takes its turn, or leaves.
//!
//! # Concurrency
//!
//! | `flags` | means |
//! |---|---|
//! | 0 | nobody of this process holds the lock or is on the way to it |
//! | `BUSY` | somebody is, and nobody else waits |
//! | `BUSY + QUEUED` | somebody is, and the line may have others |
//!
//! - Without a look at the line, `flags` goes from 0 to `BUSY` (`try_begin`) and back (`pass_lead`),
//!   by compare-and-swap with acquire and release, so that the next sees what the last has written.
//! - **`QUEUED` is set and cleared under the mutex, and set only while `BUSY` is.** The swap from
//!   `BUSY` to 0 fails while `QUEUED` is set, and a task sets `QUEUED` before it joins. So either the
//!   task that ends being busy sees the line and serves it, or the joining task sees that the lock
//!   is free and takes the lead itself.
//! - The other flags are hints, and relaxed: `hot` chooses a size, `asked` and `told` a message.
//!   `troubled` says that the outage under the mutex may have something, so that the usual path
//!   skips the mutex. It is written under the mutex, but for the first look.

mod line;
mod outage;
#[cfg(test)]
mod tests;

use std::{
    fmt,
    sync::{Arc, Weak},
    task::Waker,
};

use self::{line::WaitLine, outage::Outage};
use crate::{
    Error, FencingToken, Instant, LockName, LockOptions,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU8, Ordering},
    },
};

/// The tasks of this process that want one lock with one set of options. `H` is what they hand on.
pub(crate) struct LocalQueue<H> {
    name: LockName,
    options: Arc<LockOptions>,
    flags: AtomicU8,
    /// Somebody has joined since the last claim was made.
    hot: AtomicBool,
    /// There is something in the [`Outage`].
    troubled: AtomicBool,
    /// The store has not answered the task with the lead yet.
    asked: AtomicBool,
    /// A warning has told that tasks wait here for a lock that this process holds.
    told: AtomicBool,
    members: Mutex<Members<H>>,
}

struct Members<H> {
    /// What was held last.
    last: Weak<H>,
    /// Made when the first has to wait, or the store is away.
    waiters: Option<Box<Waiters<H>>>,
}

/// The tasks that wait, and what they know of a store that is away.
struct Waiters<H> {
    line: WaitLine<Turn<H>>,
    outage: Outage,
}

const BUSY: u8 = 1;
const QUEUED: u8 = 2;

/// What a waiting task gets. One that does not want it any more passes it on.
pub(crate) enum Turn<H> {
    /// A hold, with the token for this task.
    HandedOff(Arc<H>, FencingToken),
    /// To ask the store for the lock, and then to hold it.
    Lead,
    /// The lead, which is of no use: the task that had it has asked a store that is away for a whole
    /// lease, and this task has waited all the while.
    GivenUp(Error),
    /// Nothing, since the runtime has ended on which the lock would be kept.
    Failed(Error),
}

/// The right to ask the store for the lock in the name of the process, and then to hold it.
/// Dropped, it passes on to the next task.
pub(crate) struct Lead<H>(Option<Arc<LocalQueue<H>>>);

impl<H> Lead<H> {
    /// The caller has the lead: from `try_begin`, from its turn, or from a hold that it has ended.
    pub(crate) fn of(queue: &Arc<LocalQueue<H>>) -> Self {
        Self(Some(Arc::clone(queue)))
    }

    /// The store has granted the lock: from now on the end of the hold passes on the lead.
    pub(crate) fn goes_with_the_hold(mut self) {
        self.0 = None;
    }

    /// Whether a task of this process waits for it.
    pub(crate) fn is_wanted(&self) -> bool {
        self.0.as_ref().is_some_and(|queue| queue.has_queue())
    }
}

impl<H> Drop for Lead<H> {
    fn drop(&mut self) {
        if let Some(queue) = self.0.take() {
            queue.pass_lead();
        }
    }
}

impl<H> LocalQueue<H> {
    pub(crate) fn new(name: &LockName, options: &Arc<LockOptions>) -> Self {
        Self {
            name: name.clone(),
            options: Arc::clone(options),
            flags: AtomicU8::new(0),
            hot: AtomicBool::new(false),
            troubled: AtomicBool::new(false),
            asked: AtomicBool::new(false),
            told: AtomicBool::new(false),
            members: Mutex::new(Members { last: Weak::new(), waiters: None }),
        }
    }

    pub(crate) fn name(&self) -> &LockName {
        &self.name
    }

    pub(crate) fn options(&self) -> &LockOptions {
        &self.options
    }

    /// Takes the lead, if nobody is busy.
    pub(crate) fn try_begin(&self) -> bool {
        // Looking first is cheaper where many wait.
        self.flags.load(Ordering::Relaxed) == 0
            && self.flags.compare_exchange(0, BUSY, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Joins the line, to be woken by this waker; `None`, with the lead, if the lock is free by now.
    pub(crate) fn join(&self, waker: &Waker) -> Option<u64> {
        let mut members = self.members.lock();
        while !self.has_queue() {
            if self.try_begin() {
                self.forget_outage(&mut members);
                return None;
            }
            let order = Ordering::AcqRel;
            let _ = self.flags.compare_exchange(BUSY, BUSY | QUEUED, order, Ordering::Relaxed);
        }
        self.hot.store(true, Ordering::Relaxed);
        Some(members.waiters().line.join(waker))
    }

    /// The turn of the task with this ticket, once it has one; till then this waker is woken.
    pub(crate) fn take(&self, ticket: u64, waker: &Waker) -> Option<Turn<H>> {
        let mut members = self.members.lock();
        let waiters = members.waiters.as_mut()?;
        let turn = waiters.line.take(ticket, waker)?;
        Some(match (turn, waiters.outage.given_up(ticket)) {
            (Turn::Lead, Some(error)) => Turn::GivenUp(error),
            (turn, _) => turn,
        })
    }

    /// The task with this ticket waits no more. The turn that it had by then is the caller's to pass
    /// on.
    pub(crate) fn leave(&self, ticket: u64) -> Option<Turn<H>> {
        let mut members = self.members.lock();
        let waiters = members.waiters.as_mut()?;
        let turn = waiters.line.leave(ticket);
        self.note_length(&waiters.line);
        turn
    }

    /// Gives the first that waits this turn, if a task waits and there is one.
    pub(crate) fn give(&self, turn: impl FnOnce() -> Option<Turn<H>>) -> bool {
        let mut members = self.members.lock();
        let line = members.waiters.as_mut().map(|waiters| &mut waiters.line);
        let Some(line) = line.filter(|line| !line.is_empty()) else {
            return false;
        };
        let first = turn().and_then(|turn| line.give(turn));
        self.note_length(line);
        drop(members);
        first.map(Waker::wake).is_some()
    }

    /// No task that waits will have a turn.
    pub(crate) fn fail_all(&self, why: impl Fn() -> Error) {
        let mut members = self.members.lock();
        let Some(waiters) = members.waiters.as_mut() else { return };
        let mut wakers = Vec::new();
        while let Some(waker) = waiters.line.give(Turn::Failed(why())) {
            wakers.push(waker);
        }
        self.note_length(&waiters.line);
        drop(members);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// The last to leave the line, or to be served, clears the flag.
    fn note_length(&self, line: &WaitLine<Turn<H>>) {
        if line.is_empty() {
            self.flags.fetch_and(!QUEUED, Ordering::AcqRel);
        }
    }

    /// Lets the next task ask the store, or ends being busy.
    pub(crate) fn pass_lead(&self) {
        loop {
            let idle = self.flags.compare_exchange(BUSY, 0, Ordering::AcqRel, Ordering::Relaxed);
            if idle.is_ok() || self.give(|| Some(Turn::Lead)) {
                return;
            }
            if self.flags.load(Ordering::Acquire) & BUSY == 0 {
                return;
            }
        }
    }

    pub(crate) fn has_queue(&self) -> bool {
        self.flags.load(Ordering::Acquire) & QUEUED != 0
    }

    /// Whether a task has joined since this was last asked.
    pub(crate) fn was_joined(&self) -> bool {
        self.hot.load(Ordering::Relaxed) && {
            self.hot.store(false, Ordering::Relaxed);
            true
        }
    }

    /// The store has granted this.
    pub(crate) fn remember(&self, hold: &Arc<H>) {
        let mut members = self.members.lock();
        self.forget_outage(&mut members);
        members.last = Arc::downgrade(hold);
    }

    /// What the store has granted last, if it is still there.
    pub(crate) fn last(&self) -> Option<Arc<H>> {
        self.members.lock().last.upgrade()
    }

    /// Whether it is to be told that tasks wait here for what this process holds: once.
    pub(crate) fn tells(&self) -> bool {
        !self.told.swap(true, Ordering::Relaxed)
    }

    /// The store has failed the task with the lead, by now: since when it fails.
    pub(crate) fn store_is_away(&self, now: Instant, error: &Error) -> Instant {
        let mut members = self.members.lock();
        self.troubled.store(true, Ordering::Relaxed);
        members.waiters().outage.failed(now, error)
    }

    /// The store is asked, or has answered.
    pub(crate) fn set_asked(&self, asked: bool) {
        self.asked.store(asked, Ordering::Relaxed);
    }

    pub(crate) fn is_asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed)
    }

    /// How the store has failed last, if it has not answered since.
    pub(crate) fn last_failure(&self) -> Option<Error> {
        self.members.lock().waiters.as_ref()?.outage.last()
    }

    /// The task with the lead has asked for a whole lease: so have all that wait for it.
    pub(crate) fn give_up(&self, error: &Error) {
        let mut members = self.members.lock();
        let waiters = members.waiters();
        waiters.outage = Outage::over(waiters.line.last_ticket(), error);
        self.troubled.store(true, Ordering::Relaxed);
    }

    /// The store has answered.
    pub(crate) fn store_is_back(&self) {
        if self.troubled.load(Ordering::Relaxed) {
            self.forget_outage(&mut self.members.lock());
        }
    }

    fn forget_outage(&self, members: &mut Members<H>) {
        if self.troubled.load(Ordering::Relaxed) {
            self.troubled.store(false, Ordering::Relaxed);
            if let Some(waiters) = &mut members.waiters {
                waiters.outage = Outage::default();
            }
        }
    }
}

impl<H> Members<H> {
    fn waiters(&mut self) -> &mut Waiters<H> {
        self.waiters.get_or_insert_with(|| {
            Box::new(Waiters { line: WaitLine::default(), outage: Outage::default() })
        })
    }
}

impl<H> fmt::Debug for LocalQueue<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let waiting = self.members.lock().waiters.as_ref().map_or(0, |waiters| waiters.line.len());
        f.debug_struct("LocalQueue")
            .field("name", &self.name)
            .field("busy", &(self.flags.load(Ordering::Relaxed) & BUSY != 0))
            .field("waiting", &waiting)
            .finish_non_exhaustive()
    }
}
