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

use std::{collections::VecDeque, fmt, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::{sync::oneshot, time::Instant as Timer};

use crate::{
    ClaimId, Error, FencingToken, Guard, LockName, LockOptions, Mode,
    engine::{
        Engine,
        acquire::{Attempt, Wait, timed_out},
        hold::Hold,
    },
};

/// The most hand-offs in a row; as many tokens are reserved with each claim.
pub(crate) const MOST: u32 = 1024;
/// The longest that one claim is passed on.
pub(crate) const LONGEST: Duration = Duration::from_millis(10);

/// The tasks of this process that want one mutex with one set of options.
pub(crate) struct Cohort {
    options: LockOptions,
    local: Mutex<Local>,
}

struct Local {
    /// Somebody holds the lock or is on the way to it; all others queue.
    busy: bool,
    /// The claim of the hold that is being passed on.
    holder: Option<ClaimId>,
    queue: VecDeque<oneshot::Sender<Turn>>,
}

/// What a waiting task gets.
enum Turn {
    Handed(Handed),
    Lead(Lead),
}

/// A hold on its way to the next task. Dropped, it passes on.
struct Handed {
    hold: Arc<Hold>,
    token: FencingToken,
    taken: bool,
}

/// The right to ask the store for the lock in the name of the process. Dropped, it passes on.
pub(crate) struct Lead(Option<Arc<Cohort>>);

/// What becomes of a hold that is let go.
pub(crate) enum Pass {
    /// Another task of this process has it.
    Handed,
    /// It goes back to the store; the lead passes on when it is dropped.
    LetGo(Lead),
    /// It was lost before, and the cohort has gone on without it.
    NotOurs,
}

impl Cohort {
    pub(crate) fn new(options: LockOptions) -> Self {
        let local = Local { busy: false, holder: None, queue: VecDeque::new() };
        Self { options, local: Mutex::new(local) }
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
                Entered::Queued(turn) => match await_turn(turn, wait, name).await? {
                    Some(Turn::Lead(lead)) => lead,
                    // A hold that was lost on the way here is dropped, and the wait goes on.
                    Some(Turn::Handed(handed)) => match handed.into_guard() {
                        Some(guard) => return Ok(Some(guard)),
                        None => continue,
                    },
                    None => continue,
                },
            };
            let cohort = Some(Arc::clone(self));
            let attempt = Attempt::new(engine, name, Mode::Exclusive, self.options, MOST, cohort);
            let Some(hold) = attempt.run(wait).await? else { return Ok(None) };
            lead.settle(&hold);
            let token = hold.first_token();
            return Ok(Some(Guard::single(hold, token)));
        }
    }

    fn enter(self: &Arc<Self>, wait: Wait) -> Entered {
        let mut local = self.local.lock();
        if !local.busy {
            local.busy = true;
            return Entered::Lead(Lead::of(self));
        }
        if matches!(wait, Wait::Try) {
            return Entered::Busy;
        }
        let (sender, turn) = oneshot::channel();
        local.queue.push_back(sender);
        Entered::Queued(turn)
    }

    /// Passes a hold on to the next task, unless it has been passed on enough.
    pub(crate) fn pass(self: &Arc<Self>, hold: &Arc<Hold>) -> Pass {
        let mut turn = None;
        loop {
            let mut local = self.local.lock();
            if !local.is_holder(hold) {
                return Pass::NotOurs;
            }
            let next = local.next();
            if next.is_some() && turn.is_none() {
                turn = Handed::next_of(hold).map(Turn::Handed);
            }
            let (next, handed) = match (next, turn.take()) {
                (Some(next), Some(handed)) => (next, handed),
                (next, handed) => {
                    if let Some(mut handed) = handed {
                        handed.disarm();
                    }
                    if let Some(next) = next {
                        local.queue.push_front(next);
                    }
                    local.holder = None;
                    return Pass::LetGo(Lead::of(self));
                }
            };
            // Sending wakes a task, which must not find the lock taken.
            drop(local);
            match next.send(handed) {
                Ok(()) => return Pass::Handed,
                Err(back) => turn = Some(back),
            }
        }
    }

    /// A hold was lost: the next task need not wait until its guard is dropped.
    pub(crate) fn lost(self: &Arc<Self>, hold: &Arc<Hold>) {
        let mut local = self.local.lock();
        if !local.is_holder(hold) {
            return;
        }
        local.holder = None;
        drop(local);
        drop(Lead::of(self));
    }
}

impl Local {
    fn is_holder(&self, hold: &Hold) -> bool {
        self.holder == Some(hold.request.claim)
    }

    /// The first that still waits.
    fn next(&mut self) -> Option<oneshot::Sender<Turn>> {
        while let Some(next) = self.queue.pop_front() {
            if !next.is_closed() {
                return Some(next);
            }
        }
        None
    }
}

enum Entered {
    Lead(Lead),
    Queued(oneshot::Receiver<Turn>),
    Busy,
}

/// Waits in the process's queue. `None` if the turn got lost with its sender.
async fn await_turn(
    turn: oneshot::Receiver<Turn>,
    wait: Wait,
    name: &LockName,
) -> Result<Option<Turn>, Error> {
    match wait {
        Wait::Until(Some(deadline)) => within(deadline, turn, name).await,
        _ => Ok(turn.await.ok()),
    }
}

async fn within(
    deadline: Timer,
    turn: oneshot::Receiver<Turn>,
    name: &LockName,
) -> Result<Option<Turn>, Error> {
    match tokio::time::timeout_at(deadline, turn).await {
        Ok(turn) => Ok(turn.ok()),
        Err(_) => Err(timed_out(name)),
    }
}

impl Lead {
    fn of(cohort: &Arc<Cohort>) -> Self {
        Self(Some(Arc::clone(cohort)))
    }

    /// The store has granted the lock: from now on the hold is passed on, and its end passes on
    /// the lead.
    fn settle(mut self, hold: &Arc<Hold>) {
        let Some(cohort) = self.0.take() else { return };
        cohort.local.lock().holder = Some(hold.request.claim);
        if hold.ended().is_some() {
            // It was lost before the cohort knew it: nobody else will tell.
            cohort.lost(hold);
        }
    }
}

impl Drop for Lead {
    fn drop(&mut self) {
        let Some(cohort) = self.0.take() else { return };
        loop {
            let mut local = cohort.local.lock();
            let Some(next) = local.next() else {
                local.busy = false;
                return;
            };
            // Sending wakes a task, which must not find the lock taken.
            drop(local);
            match next.send(Turn::Lead(Self::of(&cohort))) {
                Ok(()) => return,
                Err(mut back) => back.disarm(),
            }
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
        if now.since(hold.granted_at) >= LONGEST || now >= hold.valid_until() {
            return None;
        }
        let token = hold.next_token()?;
        Some(Self { hold: Arc::clone(hold), token, taken: false })
    }

    /// The guard, unless the hold was lost on the way.
    fn into_guard(mut self) -> Option<Guard> {
        self.taken = true;
        let guard = Guard::single(Arc::clone(&self.hold), self.token);
        guard.check().is_ok().then_some(guard)
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
        let local = self.local.lock();
        f.debug_struct("Cohort")
            .field("busy", &local.busy)
            .field("waiting", &local.queue.len())
            .finish_non_exhaustive()
    }
}
