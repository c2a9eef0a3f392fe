//! Local hand-off: tasks of one process that want the same mutex queue in memory, and the process
//! hands one claim of the store from task to task.
//!
//! The idea is lock cohorting (Dice, Marathe, Shavit, *Lock Cohorting*, PPoPP 2012): a hand-off to
//! a task of the same process is cheap, and one to another process is expensive. A contended lock
//! becomes as fast as memory. An uncontended one pays for two more in-process locks.
//!
//! Other processes do not starve: see the bounds in [`release`](crate::engine::release).
//!
//! The leader role is a value, [`LeaderRole`], until the store grants the lock. If this task fails
//! or is dropped before that, dropping the value makes the next task the leader. After the grant
//! the hold has the leader role, and its end hands it to the next task. `schedules/hand_off.rs` and
//! `schedules/leave.rs` test both.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use super::take;
use crate::{
    Error, GuardState, LockName, Mode,
    engine::{Engine, hold_ref::HoldRef, runtime_gone},
    hold::{
        Hold,
        local_queue::{LeaderRole, LocalQueue, Turn},
    },
    support::{
        labels::QueuedIn,
        retry::{Wait, Why, within},
    },
};

/// The number of tokens that a claim of a contended lock reserves, which is the most hand-offs in a
/// row.
const MOST: u32 = 32_768;

/// Acquires the lock, from a task of this process or from the store.
pub(crate) async fn lock(
    engine: &Arc<Engine>,
    queue: &Arc<LocalQueue<Hold>>,
    wait: Wait,
) -> Result<Option<HoldRef>, Error> {
    let (name, options, mode) = (queue.name(), *queue.options(), Mode::Exclusive);
    loop {
        let role = if queue.try_begin() {
            // The process had no leader, so no task shares an earlier outage.
            queue.store_is_back();
            LeaderRole::of(queue)
        } else if matches!(wait, Wait::Try) {
            if holder(queue).is_some() {
                return Ok(None);
            }
            // The leader may be waiting for an unreachable store. A try is bounded by one response
            // timeout, so it sends its own claim.
            let taken = take(engine, name, mode, options, 1, None, wait).await?;
            engine.check_open()?;
            return Ok(taken);
        } else {
            match wait_in_queue(engine, queue, wait).await? {
                Turn::Leader => LeaderRole::of(queue),
                Turn::GivenUp(error) => {
                    drop(LeaderRole::of(queue));
                    return Err(error);
                }
                Turn::Failed(error) => return Err(error),
                Turn::HandedOff(hold, token) => {
                    let held = HoldRef::new(Arc::clone(engine), hold, token);
                    if held.state() == GuardState::Lost {
                        // The hold was lost since the hand-off. Its end has already handed the
                        // leader role to the next task.
                        continue;
                    }
                    return Ok(Some(held));
                }
            }
        };
        // One token while no task queues here: a store can release faster if it need not take back
        // a block of tokens.
        let tokens = if queue.was_joined() { MOST } else { 1 };
        let taken = take(engine, name, mode, options, tokens, Some(queue), wait).await?;
        let Some(held) = taken else { return Ok(None) };
        role.goes_with_the_hold();
        // Checked again, now that shutdown counts the hold: see `engine`.
        engine.check_open()?;
        return Ok(Some(held));
    }
}

async fn wait_in_queue(
    engine: &Arc<Engine>,
    queue: &Arc<LocalQueue<Hold>>,
    wait: Wait,
) -> Result<Turn<Hold>, Error> {
    let _waiting = engine.meter.wait();
    engine.meter.queued(QueuedIn::Process);
    let entry = QueueEntry { queue, engine, ticket: None };
    match wait.deadline() {
        // Equivalent to `within`. Without a future around it, a hand-off takes 4 % less time.
        None => Ok(entry.await),
        deadline => within(deadline, queue.name(), async { Ok(entry.await) })
            .await
            .map_err(|_| timed_out(engine, queue)),
    }
}

/// Returns the current hold of this process, if it has one.
fn holder(queue: &LocalQueue<Hold>) -> Option<Arc<Hold>> {
    queue.last().filter(|hold| hold.is_running())
}

/// Returns the error of a wait for another task of this process.
pub(crate) fn timed_out(engine: &Engine, queue: &LocalQueue<Hold>) -> Error {
    let name: &LockName = queue.name();
    if let Some(hold) = holder(queue) {
        return Why::HeldHere(engine.clock.now().since(hold.granted_at())).error(name);
    }
    match queue.last_failure() {
        Some(last) => Why::Failed(last).error(name),
        None if queue.is_asked() => Why::Unanswered(engine.failure.get(Some(name))).error(name),
        None => engine.timed_out(name),
    }
}

/// A place in the local queue, which the first poll takes. Dropping it leaves the queue, and hands
/// a turn that the task has already received to the next task.
struct QueueEntry<'a> {
    queue: &'a Arc<LocalQueue<Hold>>,
    engine: &'a Arc<Engine>,
    /// The task's ticket while it waits.
    ticket: Option<u64>,
}

impl Future for QueueEntry<'_> {
    type Output = Turn<Hold>;

    // Polled at each local hand-off. The compiler may put it elsewhere than its caller.
    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Turn<Hold>> {
        let Some(ticket) = self.ticket else {
            self.ticket = self.queue.join(cx.waker());
            if self.ticket.is_none() {
                return Poll::Ready(Turn::Leader);
            }
            // Loaded after the join: either `fail_all` finds this task in the queue, or this load
            // sees the flag. In the other order, nobody might wake this task.
            if self.engine.holds.is_stopped() {
                return Poll::Ready(Turn::Failed(runtime_gone()));
            }
            return Poll::Pending;
        };
        match self.queue.take(ticket, cx.waker()) {
            Some(turn) => {
                self.ticket = None;
                Poll::Ready(turn)
            }
            None => Poll::Pending,
        }
    }
}

impl Drop for QueueEntry<'_> {
    fn drop(&mut self) {
        let turn = self.ticket.and_then(|ticket| self.queue.leave(ticket));
        match turn {
            #[cfg(dlock_schedules)]
            Some(turn) if crate::sync::loses_turns() => std::mem::forget(turn),
            Some(Turn::HandedOff(hold, token)) => {
                drop(HoldRef::new(Arc::clone(self.engine), hold, token));
            }
            Some(Turn::Leader | Turn::GivenUp(_)) => self.queue.pass_leader_role(),
            Some(Turn::Failed(_)) | None => {}
        }
    }
}
