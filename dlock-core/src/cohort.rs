//! Local hand-off: tasks of one process that want the same mutex queue in memory, and the process
//! passes one claim of the store from task to task.
//!
//! The idea is lock cohorting (Dice, Marathe, Shavit, *Lock Cohorting*, PPoPP 2012): a lock that
//! is cheap to pass on among neighbours and dear to pass on beyond them. It makes a hot lock as
//! fast as memory, and costs a quiet one two uncontended in-process locks.
//!
//! Other processes are not starved: after [`MOST`] hand-offs or [`LONGEST`], whichever comes
//! first, the claim goes back to the store, and the process joins the store's queue anew, behind
//! everybody who waits there.

use std::{
    collections::VecDeque,
    fmt,
    sync::{Arc, Weak},
    time::Duration,
};

use crate::{
    Error, FencingToken, Guard, GuardState, LockName, LockOptions, Mode,
    engine::{
        Engine, OfHandles,
        acquire::take,
        hold::Hold,
        meter::Line,
        patience::{Wait, within},
    },
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU8, Ordering},
        oneshot,
    },
};

/// The most hand-offs in a row; as many tokens are reserved with each claim of a contended lock.
pub(crate) const MOST: u32 = 32_768;
/// The longest that one claim is passed on.
pub(crate) const LONGEST: Duration = Duration::from_millis(10);

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
    members: Mutex<Members>,
}

/// Who has had the lock, and who wants it.
#[derive(Default)]
struct Members {
    /// The last hold, which may rest in the keeper's books until the next grant.
    last: Weak<Hold>,
    /// Made when the first has to wait.
    queue: Option<Box<Waiting>>,
}

/// The waiting tasks of this process, some of which may have left.
#[derive(Default)]
struct Waiting {
    line: VecDeque<oneshot::Sender<Turn>>,
    /// At this length those that have left are looked for.
    sweep_at: usize,
}

impl Waiting {
    fn push(&mut self, next: oneshot::Sender<Turn>) {
        if self.line.len() >= self.sweep_at {
            self.line.retain(|waiting| !waiting.is_closed());
            self.sweep_at = 64.max(2 * self.line.len());
        }
        self.line.push_back(next);
    }
}

const BUSY: u8 = 1;
const QUEUED: u8 = 2;

/// What a waiting task gets.
enum Turn {
    Handed(Handed),
    Lead(OwnedLead),
}

/// A hold on its way to the next task. Dropped, it passes on.
struct Handed {
    hold: Arc<Hold>,
    token: FencingToken,
    taken: bool,
}

/// The right to ask the store for the lock in the name of the process, and then to hold it.
/// Dropped, it passes on to the next task.
pub(crate) struct Lead<'a>(Option<&'a Arc<Cohort>>);

/// A [`Lead`] on its way.
pub(crate) struct OwnedLead(Option<Arc<Cohort>>);

impl Cohort {
    pub(crate) fn new(name: &LockName, options: &Arc<LockOptions>) -> Self {
        Self {
            name: name.clone(),
            options: Arc::clone(options),
            flags: AtomicU8::new(0),
            hot: AtomicBool::new(false),
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
            let lead = match self.enter(wait) {
                Entered::Lead(lead) => lead,
                Entered::Busy => return Ok(None),
                Entered::Queued(turn) => {
                    let waiting = engine.meter.wait();
                    engine.meter.queued(Line::Process);
                    let turn = await_turn(turn, wait, name).await?;
                    drop(waiting);
                    match turn {
                        Some(Turn::Lead(lead)) => lead.with(self),
                        // A hold that was lost on the way here is dropped, and the wait goes on.
                        Some(Turn::Handed(handed)) => match handed.into_guard() {
                            Some(guard) => return Ok(Some(guard)),
                            None => continue,
                        },
                        None => continue,
                    }
                }
            };
            let tokens = self.block();
            let guard = match self.revive(engine, wait, tokens) {
                Some(hold) => Guard::of_hold(hold),
                None => {
                    let cohort = Some(self);
                    let mode = Mode::Exclusive;
                    let taken =
                        take(engine, name, mode, *self.options, tokens, cohort, wait).await?;
                    let Some(guard) = taken else { return Ok(None) };
                    guard
                }
            };
            lead.goes_with_the_hold();
            // Asked again, now that shutdown would see the hold.
            engine.check_open()?;
            return Ok(Some(guard));
        }
    }

    fn enter<'a>(self: &'a Arc<Self>, wait: Wait) -> Entered<'a> {
        if self.try_begin() {
            return Entered::Lead(Lead::of(self));
        }
        if matches!(wait, Wait::Try) {
            return Entered::Busy;
        }
        let mut members = self.members.lock();
        // Only a busy lock may have a queue: whoever ends being busy looks at it.
        while !self.has_queue() {
            if self.try_begin() {
                return Entered::Lead(Lead::of(self));
            }
            let order = Ordering::AcqRel;
            let _ = self.flags.compare_exchange(BUSY, BUSY | QUEUED, order, Ordering::Relaxed);
        }
        let (sender, turn) = oneshot::channel();
        members.queue.get_or_insert_default().push(sender);
        self.hot.store(true, Ordering::Relaxed);
        Entered::Queued(turn)
    }

    /// Holds the lock again with the hold that rests here, if it is free.
    fn revive(&self, engine: &Engine, wait: Wait, tokens: u32) -> Option<Arc<Hold>> {
        if matches!(wait, Wait::Try) || engine.check_open().is_err() {
            return None;
        }
        let hold = self.members.lock().last.upgrade()?;
        (hold.block() >= tokens && hold.revive()).then_some(hold)
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

    /// Looks for this hold when the next one is wanted.
    pub(crate) fn remember(&self, hold: &Arc<Hold>) {
        let before = std::mem::replace(&mut self.members.lock().last, Arc::downgrade(hold));
        if let Some(before) = before.upgrade() {
            before.make_way();
        }
    }

    fn try_begin(&self) -> bool {
        self.flags.compare_exchange(0, BUSY, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// The first that still waits.
    fn next(&self) -> Option<oneshot::Sender<Turn>> {
        if !self.has_queue() {
            return None;
        }
        let mut members = self.members.lock();
        let line = &mut members.queue.get_or_insert_default().line;
        let next = loop {
            match line.pop_front() {
                Some(gone) if gone.is_closed() => {}
                next => break next,
            }
        };
        if line.is_empty() {
            self.flags.fetch_and(!QUEUED, Ordering::AcqRel);
        }
        next
    }

    /// Lets the next task ask the store, or ends being busy.
    fn pass_lead(self: &Arc<Self>) {
        loop {
            let idle = self.flags.compare_exchange(BUSY, 0, Ordering::AcqRel, Ordering::Relaxed);
            if idle.is_ok() {
                return;
            }
            let Some(next) = self.next() else {
                if self.flags.load(Ordering::Acquire) & BUSY == 0 {
                    return;
                }
                continue;
            };
            match next.send(Turn::Lead(OwnedLead(Some(Arc::clone(self))))) {
                Ok(()) => return,
                Err(mut back) => back.disarm(),
            }
        }
    }

    /// Passes a hold on to the next task, unless it was lost or has been passed on enough.
    pub(crate) fn pass(&self, hold: &Arc<Hold>) -> bool {
        let mut turn = None;
        // What to hand on is made before a waiter is taken out, since who was taken out can't be
        // put back: the hold may be lost meanwhile, and the lock look idle.
        while self.has_queue() && hold.is_running() {
            if turn.is_none() {
                turn = Handed::next_of(hold).map(Turn::Handed);
            }
            let Some(handed) = turn.take() else { break };
            let Some(next) = self.next() else {
                turn = Some(handed);
                break;
            };
            match next.send(handed) {
                Ok(()) => return true,
                Err(back) => turn = Some(back),
            }
        }
        if let Some(mut handed) = turn {
            handed.disarm();
        }
        false
    }

    fn has_queue(&self) -> bool {
        self.flags.load(Ordering::Acquire) & QUEUED != 0
    }
}

impl OfHandles for Cohort {
    fn key(&self) -> (&LockName, &LockOptions) {
        (&self.name, &self.options)
    }
}

enum Entered<'a> {
    Lead(Lead<'a>),
    Queued(oneshot::Receiver<Turn>),
    Busy,
}

/// Waits in the process's queue. `None` if the turn got lost with its sender.
async fn await_turn(
    turn: oneshot::Receiver<Turn>,
    wait: Wait,
    name: &LockName,
) -> Result<Option<Turn>, Error> {
    within(wait.deadline(), name, async { Ok(turn.await.ok()) }).await
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

impl Drop for Lead<'_> {
    fn drop(&mut self) {
        if let Some(cohort) = self.0.take() {
            cohort.pass_lead();
        }
    }
}

impl OwnedLead {
    fn with(mut self, cohort: &Arc<Cohort>) -> Lead<'_> {
        self.0 = None;
        Lead::of(cohort)
    }
}

impl Drop for OwnedLead {
    fn drop(&mut self) {
        if let Some(cohort) = self.0.take() {
            cohort.pass_lead();
        }
    }
}

impl Turn {
    /// Nobody had it; whoever tried to pass it on still has.
    fn disarm(&mut self) {
        match self {
            Self::Lead(lead) => lead.0 = None,
            Self::Handed(handed) => handed.taken = true,
        }
    }
}

impl Handed {
    /// The hold with its next token, if it may be passed on once more.
    fn next_of(hold: &Arc<Hold>) -> Option<Self> {
        let now = hold.engine.clock.now();
        let spent = now.since(hold.granted_at()) >= LONGEST || now >= hold.valid_until();
        if spent || hold.engine.is_closed() {
            return None;
        }
        let token = hold.next_token()?;
        Some(Self { hold: Arc::clone(hold), token, taken: false })
    }

    /// The guard, unless the hold was lost on the way.
    fn into_guard(mut self) -> Option<Guard> {
        self.taken = true;
        let held = self.hold.state() != GuardState::Lost;
        let guard = Guard::single(Arc::clone(&self.hold), self.token);
        held.then_some(guard)
    }
}

impl Drop for Handed {
    fn drop(&mut self) {
        if !self.taken {
            self.hold.let_go_in_background();
        }
    }
}

impl fmt::Debug for Cohort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let waiting = self.members.lock().queue.as_ref().map_or(0, |queue| queue.line.len());
        f.debug_struct("Cohort")
            .field("name", &self.name)
            .field("busy", &(self.flags.load(Ordering::Relaxed) & BUSY != 0))
            .field("waiting", &waiting)
            .finish_non_exhaustive()
    }
}
