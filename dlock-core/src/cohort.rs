//! Local hand-off: tasks of one process that want the same mutex queue in memory, and the process
//! passes one claim of the store from task to task.
//!
//! The idea is lock cohorting (Dice, Marathe, Shavit, *Lock Cohorting*, PPoPP 2012): a lock that
//! is cheap to pass on among neighbours and dear to pass on beyond them. It makes a hot lock as
//! fast as memory, and costs a quiet one two uncontended in-process locks.
//!
//! Other processes are not starved: after [`MOST`] hand-offs or [`LONGEST`], whichever comes
//! first, the claim goes back to the store, and the process joins the store's queue anew, behind
//! everybody who waits there. Where nobody queues, it leaves the lock alone for a [`TURN`].

mod line;
mod outage;
mod place;

use std::{
    fmt,
    sync::{Arc, Weak},
    task::Waker,
    time::Duration,
};

use self::{line::Line, outage::Outage, place::Place};
use crate::{
    Error, FencingToken, Guard, GuardState, LockName, LockOptions, Mode,
    engine::{Engine, OfHandles, acquire::take, hold::Hold},
    support::{
        meter,
        retry::{Wait, Why, within},
    },
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU8, Ordering},
    },
};

/// The most hand-offs in a row; as many tokens are reserved with each claim of a contended lock.
pub(crate) const MOST: u32 = 32_768;
/// The longest that one claim is passed on.
pub(crate) const LONGEST: Duration = Duration::from_millis(10);
/// For how long the process then leaves the lock alone where nobody queues, so that who asks at
/// random finds it free one time in six.
pub(crate) const TURN: Duration = Duration::from_millis(2);

/// The tasks of this process that want one mutex with one set of options.
///
/// | `flags` | means |
/// |---|---|
/// | 0 | nobody of this process holds the lock or is on the way to it |
/// | `BUSY` | somebody is, and nobody else waits |
/// | `BUSY + QUEUED` | somebody is, and the queue may have others |
///
/// A quiet lock goes from 0 to `BUSY` and back without a look at the queue. `QUEUED` is set and
/// cleared under the mutex only.
pub(crate) struct Cohort {
    name: LockName,
    options: Arc<LockOptions>,
    flags: AtomicU8,
    /// Somebody has queued since the last claim was made.
    hot: AtomicBool,
    /// There is something in the line's [`Outage`].
    troubled: AtomicBool,
    /// The store has not answered yet to who asks.
    asked: AtomicBool,
    /// It was told that tasks wait here for a lock that this process holds.
    told: AtomicBool,
    members: Mutex<Members>,
}

/// Who has had the lock, and who wants it.
#[derive(Default)]
struct Members {
    /// The last hold.
    last: Weak<Hold>,
    /// Made when the first has to wait, or the store is away.
    line: Option<Box<Waiters>>,
}

/// Who waits, and what they know of a store that is away.
#[derive(Default)]
struct Waiters {
    line: Line<Turn>,
    outage: Outage,
}

const BUSY: u8 = 1;
const QUEUED: u8 = 2;

/// What a waiting task gets. Whoever does not want it passes it on.
enum Turn {
    /// A hold, with the token for this task.
    Handed(Arc<Hold>, FencingToken),
    /// To ask the store for the lock, and then to hold it.
    Lead,
    /// The lead, which is of no use: who had it has asked a store that is away for a whole lease, and
    /// this task has waited all the while.
    GivenUp(Error),
    /// Nothing, since the runtime has ended on which the lock would be kept.
    Failed(Error),
}

/// The right to ask the store for the lock in the name of the process, and then to hold it.
/// Dropped, it passes on to the next task.
pub(crate) struct Lead<'a>(Option<&'a Arc<Cohort>>);

/// A [`Lead`] that goes with what is seen through in the background.
pub(crate) struct OwnedLead(Option<Arc<Cohort>>);

impl Cohort {
    pub(crate) fn new(name: &LockName, options: &Arc<LockOptions>) -> Self {
        Self {
            name: name.clone(),
            options: Arc::clone(options),
            flags: AtomicU8::new(0),
            hot: AtomicBool::new(false),
            troubled: AtomicBool::new(false),
            asked: AtomicBool::new(false),
            told: AtomicBool::new(false),
            members: Mutex::default(),
        }
    }

    /// Takes the lock: from a task of this process, or else from the store.
    pub(crate) async fn lock(
        self: &Arc<Self>,
        engine: &Arc<Engine>,
        name: &LockName,
        wait: Wait,
    ) -> Result<Option<Guard>, Error> {
        loop {
            let lead = if self.try_begin() {
                // What an earlier outage was like, does not matter.
                self.store_is_back();
                Lead::of(self)
            } else if matches!(wait, Wait::Try) {
                if self.holder().is_some() {
                    return Ok(None);
                }
                // Who is on the way to the lock may wait for a store that is away.
                let mode = Mode::Exclusive;
                let taken = take(engine, name, mode, *self.options, 1, None, wait).await?;
                engine.check_open()?;
                return Ok(taken);
            } else {
                match self.wait(engine, name, wait).await? {
                    Turn::Lead => Lead::of(self),
                    Turn::GivenUp(error) => {
                        drop(Lead::of(self));
                        return Err(error);
                    }
                    Turn::Failed(error) => return Err(error),
                    Turn::Handed(hold, token) => {
                        let held = hold.state() != GuardState::Lost;
                        let guard = Guard::single(hold, token);
                        if held {
                            return Ok(Some(guard));
                        }
                        // It was lost on the way here.
                        continue;
                    }
                }
            };
            let tokens = self.block();
            let (cohort, mode) = (Some(self), Mode::Exclusive);
            let taken = take(engine, name, mode, *self.options, tokens, cohort, wait).await?;
            let Some(guard) = taken else { return Ok(None) };
            lead.goes_with_the_hold();
            // Asked again, now that shutdown would see the hold.
            engine.check_open()?;
            return Ok(Some(guard));
        }
    }

    /// Waits in the process's queue.
    async fn wait(
        self: &Arc<Self>,
        engine: &Engine,
        name: &LockName,
        wait: Wait,
    ) -> Result<Turn, Error> {
        let _waiting = engine.meter.wait();
        engine.meter.queued(meter::Line::Process);
        let place = Place::new(self, engine);
        match wait.deadline() {
            // As `within` does; without a future around it, a hand-over takes 4 % less.
            None => Ok(place.await),
            deadline => within(deadline, name, async { Ok(place.await) })
                .await
                .map_err(|_| self.timed_out(engine, name)),
        }
    }

    /// Joins the queue; `None`, with the lead, if the lock is free by now.
    fn join(&self, waker: &Waker) -> Option<u64> {
        let mut members = self.members.lock();
        // Only a busy lock may have a queue: whoever ends being busy looks at it.
        while !self.has_queue() {
            if self.try_begin() {
                self.forget_outage(&mut members);
                return None;
            }
            let order = Ordering::AcqRel;
            let _ = self.flags.compare_exchange(BUSY, BUSY | QUEUED, order, Ordering::Relaxed);
        }
        self.hot.store(true, Ordering::Relaxed);
        Some(members.line.get_or_insert_default().line.join(waker))
    }

    /// How many tokens to reserve with the next claim: one while nobody queues here, since a store
    /// can be quicker when no block has to come back.
    fn block(&self) -> u32 {
        if self.hot.load(Ordering::Relaxed) {
            self.hot.store(false, Ordering::Relaxed);
            return MOST;
        }
        1
    }

    /// Knows this hold as the one that this process has.
    pub(crate) fn remember(&self, hold: &Arc<Hold>) {
        let mut members = self.members.lock();
        self.forget_outage(&mut members);
        members.last = Arc::downgrade(hold);
    }

    fn try_begin(&self) -> bool {
        // Looking first is cheaper where many wait.
        self.flags.load(Ordering::Relaxed) == 0
            && self.flags.compare_exchange(0, BUSY, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Gives the first who waits this turn, if somebody waits and there is one.
    fn give(&self, turn: impl FnOnce() -> Option<Turn>) -> bool {
        let mut members = self.members.lock();
        let line = members.line.as_mut().map(|waiters| &mut waiters.line);
        let Some(line) = line.filter(|line| !line.is_empty()) else {
            return false;
        };
        let first = turn().and_then(|turn| line.give(turn));
        self.note_length(line);
        drop(members);
        match first {
            Some(waker) => {
                waker.wake();
                true
            }
            None => false,
        }
    }

    /// Nobody who waits will have a turn.
    pub(crate) fn fail_all(&self, why: impl Fn() -> Error) {
        let mut members = self.members.lock();
        let Some(waiters) = members.line.as_mut() else { return };
        let mut wakers = Vec::new();
        while let Some(waker) = waiters.line.give(Turn::Failed(why())) {
            wakers.push(waker);
        }
        self.note_length(&waiters.line);
        drop(members);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Who leaves the line, or is served, may be the last.
    fn note_length(&self, line: &Line<Turn>) {
        if line.is_empty() {
            self.flags.fetch_and(!QUEUED, Ordering::AcqRel);
        }
    }

    /// Lets the next task ask the store, or ends being busy.
    fn pass_lead(&self) {
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

    /// Passes a hold on to the next task, unless it was lost or has been passed on enough.
    pub(crate) fn pass(&self, hold: &Arc<Hold>) -> bool {
        if !self.has_queue() || !hold.is_running() || !may_pass(hold) {
            return false;
        }
        // One that is lost meanwhile has no more tokens.
        let next = || Some(Turn::Handed(Arc::clone(hold), hold.next_token()?));
        let passed = self.give(next);
        if passed {
            hold.tell_watchers();
        }
        passed
    }

    /// The hold that this process has, if it has one.
    fn holder(&self) -> Option<Arc<Hold>> {
        let last = self.members.lock().last.upgrade()?;
        (last.state() != GuardState::Lost).then_some(last)
    }

    /// Why a wait for a task of this process has ended.
    pub(crate) fn timed_out(&self, engine: &Engine, name: &LockName) -> Error {
        if let Some(hold) = self.holder() {
            return Why::HeldHere(engine.clock.now().since(hold.granted_at())).error(name);
        }
        match self.last_failure().or_else(|| engine.failure.get()) {
            Some(last) => Why::Failed(last).error(name),
            None if self.asked.load(Ordering::Relaxed) => Why::Unanswered(None).error(name),
            None => engine.timed_out(name),
        }
    }

    /// Whether it is to be told that tasks wait here for what this process holds: once.
    pub(crate) fn tells(&self) -> bool {
        !self.told.swap(true, Ordering::Relaxed)
    }

    pub(crate) fn has_queue(&self) -> bool {
        self.flags.load(Ordering::Acquire) & QUEUED != 0
    }
}

impl OfHandles for Cohort {
    fn key(&self) -> (&LockName, &LockOptions) {
        (&self.name, &self.options)
    }
}

impl<'a> Lead<'a> {
    pub(crate) fn of(cohort: &'a Arc<Cohort>) -> Self {
        Self(Some(cohort))
    }

    /// The store has granted the lock: from now on the end of the hold passes on the lead.
    fn goes_with_the_hold(mut self) {
        self.0 = None;
    }

    pub(crate) fn into_owned(mut self) -> OwnedLead {
        OwnedLead(self.0.take().map(Arc::clone))
    }
}

impl OwnedLead {
    /// Whether somebody of this process waits for it.
    pub(crate) fn is_wanted(&self) -> bool {
        self.0.as_ref().is_some_and(|cohort| cohort.has_queue())
    }
}

impl Drop for Lead<'_> {
    fn drop(&mut self) {
        if let Some(cohort) = self.0.take() {
            cohort.pass_lead();
        }
    }
}

impl Drop for OwnedLead {
    fn drop(&mut self) {
        if let Some(cohort) = self.0.take() {
            cohort.pass_lead();
        }
    }
}

/// Whether a hold may be passed on once more, by the time of its grant and its lease, and while
/// somebody renews it.
fn may_pass(hold: &Hold) -> bool {
    let now = hold.engine.clock.now();
    let spent = now.since(hold.granted_at()) >= LONGEST || now >= hold.valid_until();
    !spent && hold.engine.check_open().is_ok()
}

impl fmt::Debug for Cohort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let waiting = self.members.lock().line.as_ref().map_or(0, |waiters| waiters.line.len());
        f.debug_struct("Cohort")
            .field("name", &self.name)
            .field("busy", &(self.flags.load(Ordering::Relaxed) & BUSY != 0))
            .field("waiting", &waiting)
            .finish_non_exhaustive()
    }
}
