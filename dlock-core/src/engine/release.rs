//! Letting go of a hold: handing it off within the process, or giving it back to the store.
//!
//! Other processes do not starve: after [`LONGEST`], or when the tokens of its block are used up,
//! the claim goes back to the store, and the process joins the store's queue anew, behind everybody
//! who waits there. Where nobody queues, it leaves the lock alone for a [`TURN`].

use std::{
    future::poll_fn,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use super::{Engine, end, withdraw};
use crate::{
    Answer, Ended, Error, ErrorKind, Fairness, Released,
    hold::{
        Hold,
        local_queue::{Lead, Turn},
    },
    support::tasks::Ticket,
    sync::time,
};

/// The longest that one claim is handed on.
const LONGEST: Duration = Duration::from_millis(10);
/// For how long the process then leaves the lock alone where nobody queues, so that others, who ask
/// at random times, find it free one time in six.
const TURN: Duration = Duration::from_millis(2);

/// What letting go comes to.
pub(super) enum LettingGo {
    /// It is done.
    Done(Result<Released, Error>),
    /// It takes a round trip.
    Later(Releasing),
}

/// A release under way.
type Releasing = Pin<Box<dyn Future<Output = Result<Released, Error>> + Send>>;

/// Lets go: to the next task of this process, or back to the store.
pub(super) fn let_go(engine: &Arc<Engine>, hold: &Arc<Hold>) -> LettingGo {
    if hand_off(engine, hold) {
        return LettingGo::Done(Ok(Released::Released));
    }
    // Past its deadline it is lost, also where nobody has looked until now.
    end::state(engine, hold);
    let held = end::released(engine, hold);
    let lead = hold.queue().filter(|_| held).map(Lead::of);
    let first = match engine.backend.release(&hold.claim()).try_ready() {
        Ok(Ok(released)) => {
            if held {
                engine.holds.remove(hold);
            }
            drop(lead);
            return LettingGo::Done(Ok(settled(engine, hold, held, released)));
        }
        Ok(Err(error)) => Answer::ready(Err(error)),
        Err(answer) => answer,
    };
    // Under way before it is out of the books, so that shutdown waits for one or the other.
    let ticket = engine.tasks.ticket();
    if held {
        engine.holds.remove(hold);
    }
    let lost = !held || engine.clock.now() >= hold.valid_until();
    let release =
        Box::pin(release(Arc::clone(engine), Arc::clone(hold), first, lead, !lost, ticket));
    if lost && hold.delay().is_zero() {
        // Nobody need wait for a store that may be away, only to hear what is known.
        see_through(engine, release, DROPPED);
        return LettingGo::Done(Ok(Released::AlreadyLost));
    }
    LettingGo::Later(release)
}

const DROPPED: &str = "release of a dropped guard failed";

/// Lets go without waiting for the outcome.
pub(super) fn let_go_in_background(engine: &Arc<Engine>, hold: &Arc<Hold>) {
    if let LettingGo::Later(release) = let_go(engine, hold) {
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

/// Hands a hold off to the next task that waits for it, unless it was lost or has been handed on
/// for long enough.
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
    // One that is lost meanwhile has no more tokens.
    let handed_off = queue.give(|| Some(Turn::HandedOff(Arc::clone(hold), hold.next_token()?)));
    if handed_off {
        hold.tell_watchers();
    }
    handed_off
}

/// Sees a release through whose first request has been made.
async fn release(
    engine: Arc<Engine>,
    hold: Arc<Hold>,
    mut first: Answer<Released>,
    mut lead: Option<Lead<Hold>>,
    held: bool,
    _ticket: Ticket,
) -> Result<Released, Error> {
    let sent = poll_fn(|cx| Poll::Ready(Pin::new(&mut first).poll(cx))).await;
    // The next task of this process need not wait for the answer: what it asks comes after this, in
    // one message with it where the store can. Should this come late all the same, it waits in the
    // store's queue. Where there is none, nobody else would ever find the lock free.
    if engine.backend.guarantees().fairness > Fairness::None {
        lead = None;
    }
    let first = match sent {
        Poll::Ready(answer) => answer,
        Poll::Pending => first.await,
    };
    if let Some(lead) = lead {
        leave_a_turn(&engine, &hold, lead);
    }
    let released = match first {
        Ok(released) => released,
        Err(error) if !held => {
            // What it frees early is the lock-delay.
            withdraw::withdraw(&engine, hold.claim().with_used(0), hold.stored_lease(), None);
            engine.failure.note(&error);
            return Ok(Released::AlreadyLost);
        }
        // Boxed, since few are asked for again.
        failed => Box::pin(ask_again(&engine, &hold, failed)).await?,
    };
    Ok(settled(&engine, &hold, held, released))
}

/// What the store's answer to the release comes to. A loss that nothing else tells of is counted
/// here. An answer that comes after the end of the lease tells of none: the claim may have been
/// there until then.
fn settled(engine: &Engine, hold: &Hold, held: bool, released: Released) -> Released {
    if !held {
        return Released::AlreadyLost;
    }
    if released == Released::AlreadyLost && engine.clock.now() < hold.valid_until() {
        end::tell_loss(engine, hold, Ended::Revoked);
    }
    released
}

/// Asks again for one lease, and after that in the background.
async fn ask_again(
    engine: &Arc<Engine>,
    hold: &Hold,
    failed: Result<Released, Error>,
) -> Result<Released, Error> {
    let (claim, lease) = (hold.claim(), hold.stored_lease());
    let answer = withdraw::retry_release(engine, &claim, lease, failed).await;
    answer.map_err(|error| {
        if error.kind() == ErrorKind::Unavailable {
            withdraw::withdraw(engine, claim, lease, None);
        }
        error.during("release").with_lock(hold.name())
    })
}

/// Passes the lead on, over a store in which nobody queues. If this process has handed the lock on,
/// the others have a turn first: those that happen to ask within it.
fn leave_a_turn(engine: &Engine, hold: &Hold, lead: Lead<Hold>) {
    if hold.was_handed_off() && lead.is_wanted() {
        engine.tasks.run(async move {
            time::sleep(TURN).await;
            drop(lead);
        });
    }
}

/// A release that goes on in the background when its caller goes away.
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
