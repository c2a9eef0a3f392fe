//! The end of one guard: its hold is handed off within the process, or released in the store.
//!
//! Other processes do not starve. After [`LONGEST`], or when the tokens of its block are used up,
//! the claim is released in the store, and the process joins the store's queue again, behind all
//! waiters there. On a store without a queue, the process then does not claim the lock for a
//! [`TURN`].
//!
//! If the process dies during a release, or all retries fail, the lease frees the lock. If only the
//! answer is lost, the retry finds no claim, which counts as released: see
//! [`cancel::retry_release`].

use std::{
    future::poll_fn,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use super::{Engine, cancel, end};
use crate::{
    Answer, Ended, Error, ErrorKind, Fairness, FencingToken, OrphanRelease, Released, Scope,
    hold::{
        Hold,
        local_queue::{LeaderRole, Turn},
    },
    support::tasks::Ticket,
    sync::time,
};

/// The longest time for which one claim is handed off within the process.
const LONGEST: Duration = Duration::from_millis(10);
/// The time for which the process then does not claim the lock on a store without a queue. Other
/// processes poll at random times, and about one poll in six finds the lock free.
const TURN: Duration = Duration::from_millis(2);

/// The result of a release or hand-off.
pub(super) enum ReleaseProgress {
    /// It is done.
    Done(Result<Released, Error>),
    /// It needs a round trip.
    Later(Releasing),
}

/// A release in progress.
type Releasing = Pin<Box<dyn Future<Output = Result<Released, Error>> + Send>>;

/// Hands the hold off to the next task of this process, or releases it in the store.
pub(super) fn hand_off_or_release(engine: &Arc<Engine>, hold: &Arc<Hold>) -> ReleaseProgress {
    if hand_off(engine, hold) {
        return ReleaseProgress::Done(Ok(Released::Released));
    }
    release_in_store(engine, hold)
}

/// Releases the hold in the store.
pub(super) fn release_in_store(engine: &Arc<Engine>, hold: &Arc<Hold>) -> ReleaseProgress {
    // Past its deadline the hold is lost, even if no task has detected that yet. So this call
    // precedes `released`, which would report the lock as held to the end.
    end::state(engine, hold);
    let held = end::released(engine, hold);
    // The task that ends the hold hands the leader role to the next task. After a loss, it has done
    // so.
    let role = hold.queue().filter(|_| held).map(LeaderRole::of);
    let first = match engine.backend.release(&hold.claim()).try_ready() {
        Ok(Ok(released)) => {
            if held {
                engine.holds.remove(hold);
            }
            drop(role);
            return ReleaseProgress::Done(Ok(settled(engine, hold, held, released)));
        }
        Ok(Err(error)) => Answer::ready(Err(error)),
        Err(answer) => answer,
    };
    // The ticket is taken before the hold leaves the renewal queue, so that shutdown always waits
    // for one or the other.
    let ticket = engine.tasks.ticket();
    if held {
        engine.holds.remove(hold);
    }
    let lost = !held || engine.clock.now() >= hold.valid_until();
    if lost {
        // The end of the lease says nothing about earlier guards.
        hold.set_outcome(true);
    }
    let release =
        Box::pin(release(Arc::clone(engine), Arc::clone(hold), first, role, !lost, ticket));
    if lost && hold.delay().is_zero() {
        // The outcome is known, so the caller does not wait for a store that may be unreachable.
        see_through(engine, release, DROPPED);
        return ReleaseProgress::Done(Ok(Released::AlreadyLost));
    }
    ReleaseProgress::Later(release)
}

const DROPPED: &str = "release of a dropped guard failed";

/// Releases without waiting for the outcome, for a guard that was dropped.
pub(super) fn release_in_background(engine: &Arc<Engine>, hold: &Arc<Hold>) {
    if let ReleaseProgress::Later(release) = hand_off_or_release(engine, hold) {
        see_through(engine, release, DROPPED);
    }
}

fn see_through(engine: &Engine, release: Releasing, warning: &'static str) {
    engine.tasks.run(async move {
        if let Err(error) = release.await {
            tracing::warn!(target: "dlock", %error, "{warning}");
        }
    });
}

/// Hands a hold off to the next waiting task, unless it was lost or one of the bounds is reached.
fn hand_off(engine: &Engine, hold: &Arc<Hold>) -> bool {
    let Some(queue) = hold.queue() else { return false };
    if !queue.has_queue() || !hold.is_running() {
        return false;
    }
    let now = engine.clock.now();
    let spent = now.since(hold.granted_at()) >= LONGEST || now >= hold.valid_until();
    if spent || engine.check_open().is_err() {
        return false;
    }
    // If the hold is lost meanwhile, its block is frozen, and no token can be handed off.
    let handed_off = queue.give(|| Some(Turn::HandedOff(Arc::clone(hold), hold.next_token()?)));
    if handed_off {
        hold.notify_watchers();
    }
    handed_off
}

/// As [`hand_off`], for a guard whose work has just ended: [`confirmed`] then tells whether the
/// lock was held until now. A hold whose renewal may end too early to confirm it is not handed off.
pub(super) fn hand_off_after_work(engine: &Engine, hold: &Arc<Hold>) -> bool {
    let is_wanted = hold.queue().is_some_and(|queue| queue.has_queue());
    is_wanted && hold.prepare_to_confirm() && hand_off(engine, hold)
}

/// Returns whether renewals confirm hand-offs before these end. The renewal of a session proves
/// less than a release: the session may have lost the claim. A store in this process answers a
/// release at once.
fn renews_early(engine: &Engine) -> bool {
    let guarantees = engine.backend.guarantees();
    guarantees.orphan_release != OrphanRelease::SessionEnd && guarantees.scope != Scope::Process
}

/// Waits until it is known whether the guard with this token, which was handed off, was held to its
/// end. If that is still unknown when hand-offs end, or if the process runs out of tasks that wait
/// for the lock, a renewal is sent for it, which confirms all hand-offs before it.
pub(super) async fn confirmed(engine: &Engine, hold: &Hold, token: FencingToken) -> Released {
    let request = || {
        if hold.request_confirmation(token) {
            engine.holds.expedite(hold);
        }
    };
    if renews_early(engine) && hold.runs_out_of_tasks() {
        request();
    }
    let mut late = pin!(engine.clock.sleep_until(hold.granted_at().saturating_add(LONGEST)));
    let mut is_late = false;
    loop {
        let mut notified = pin!(hold.confirming().notified());
        notified.as_mut().enable();
        if let Some(released) = hold.confirmed(token) {
            return released;
        }
        tokio::select! {
            biased;
            () = notified => {}
            () = &mut late, if !is_late => {
                is_late = true;
                request();
            }
        }
    }
}

/// Completes a release. `first` is its first request.
async fn release(
    engine: Arc<Engine>,
    hold: Arc<Hold>,
    mut first: Answer<Released>,
    mut role: Option<LeaderRole<Hold>>,
    held: bool,
    _ticket: Ticket,
) -> Result<Released, Error> {
    let sent = poll_fn(|cx| Poll::Ready(Pin::new(&mut first).poll(cx))).await;
    // The next task of this process does not wait for the answer. Its claim is sent after this
    // release, in the same message if the store supports that. If the release is executed late, the
    // claim waits in the store's queue. On a store without a queue the leader role waits for the
    // answer: otherwise other processes would never find the lock free.
    if engine.backend.guarantees().fairness > Fairness::None {
        role = None;
    }
    let first = match sent {
        Poll::Ready(answer) => answer,
        Poll::Pending => first.await,
    };
    if let Some(role) = role {
        leave_a_turn(&engine, &hold, role);
    }
    let released = match engine.in_context("release", hold.name(), first) {
        Ok(released) => released,
        Err(error) if !held => {
            // The lock is already lost. The retry only ends the lock-delay early.
            cancel::cancel(&engine, hold.claim().with_used(0), hold.stored_lease(), None);
            engine.failure.note(&error, Some(hold.name()));
            return Ok(Released::AlreadyLost);
        }
        // Boxed, since few releases are retried, and the future would be larger for all.
        failed => Box::pin(retry_in_background(&engine, &hold, failed)).await?,
    };
    Ok(settled(&engine, &hold, held, released))
}

/// Returns the result of the store's answer to the release. If the answer is the first sign of a
/// loss, the loss is counted here. An answer after the end of the lease is no such sign: the claim
/// may have been held until then.
fn settled(engine: &Engine, hold: &Hold, held: bool, released: Released) -> Released {
    if !held {
        return Released::AlreadyLost;
    }
    let is_revoked = released == Released::AlreadyLost && engine.clock.now() < hold.valid_until();
    if is_revoked {
        end::report_loss(engine, hold, Ended::Revoked);
    }
    hold.set_outcome(!is_revoked);
    released
}

/// Retries for one lease, and after that in the background.
async fn retry_in_background(
    engine: &Arc<Engine>,
    hold: &Hold,
    failed: Result<Released, Error>,
) -> Result<Released, Error> {
    let (claim, lease) = (hold.claim(), hold.stored_lease());
    let answer = cancel::retry_release(engine, &claim, lease, failed).await;
    answer.inspect_err(|error| {
        // Unknown: earlier guards count as held to the end, as this one does.
        hold.set_outcome(true);
        if error.kind() == ErrorKind::Unavailable {
            cancel::cancel(engine, claim, lease, None);
        }
    })
}

/// Hands the leader role to the next task, on a store without a queue. If this process has handed
/// the lock off, the other processes get a turn first, during which their polls find it free.
fn leave_a_turn(engine: &Engine, hold: &Hold, role: LeaderRole<Hold>) {
    if hold.was_handed_off() && role.is_wanted() {
        engine.tasks.run(async move {
            time::sleep(TURN).await;
            drop(role);
        });
    }
}

/// A release that continues in the background if its caller drops it.
pub(super) struct Background {
    engine: Arc<Engine>,
    release: Option<Releasing>,
}

impl Background {
    pub(super) fn new(engine: &Arc<Engine>, release: Releasing) -> Self {
        Self { engine: Arc::clone(engine), release: Some(release) }
    }
}

impl Future for Background {
    type Output = Result<Released, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(release) = &mut self.release else { return Poll::Pending };
        let result = std::task::ready!(release.as_mut().poll(cx));
        self.release = None;
        Poll::Ready(result)
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        if let Some(release) = self.release.take() {
            see_through(&self.engine, release, "release failed after its future was dropped");
        }
    }
}
