//! Checks of what the cases of the suite can't see from where they stand. Each is one that a right
//! store passes.

use std::{sync::Arc, time::Duration};

use dlock_core::{
    AcquireRequest, Acquired, Backend, Clock, FencingToken, Instant, LockName, LockOptions, Locks,
    Mode,
};
use dlock_testkit::history::{Event, History, Op, Reply, exclusion};
use libtest_mimic::Failed;

use crate::toy::Toy;

/// Longer than anything here takes on a machine that stands still.
const LEASE: Duration = Duration::from_secs(100);

/// A guard is believed for no longer than a store lasts whose clock is fast by one in a hundred.
pub(crate) async fn the_deadline_passes_before_the_lease_of_a_fast_clock(
    toy: Toy,
) -> Result<(), Failed> {
    let name = LockName::new("lock")?;
    let locks =
        Locks::new(Arc::new(toy.another()))?.with_options(LockOptions::new().with_lease(LEASE))?;
    let guard = locks.mutex(&name)?.try_lock().await?.ok_or("a free lock is busy")?;
    let begun = now();
    let ends = lease_ends(&toy, &name, |left| left - left / 100).await?;
    let believed = now().saturating_add(guard.remaining());
    one_after_the_other(guard.token(), [begun, believed], ends)
}

/// Who asks again for what it holds has it for no longer than before, or anew.
pub(crate) async fn the_deadline_of_a_found_claim_passes_before_the_lease(
    toy: Toy,
) -> Result<(), Failed> {
    let request = AcquireRequest::new(LockName::new("lock")?, Mode::Exclusive, LEASE);
    toy.acquire(&request).await?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let Acquired::Granted(grant) = toy.acquire(&request).await? else {
        return Err("who holds it does not find it".into());
    };
    let ends = lease_ends(&toy, &request.name, |left| left).await?;
    let believed = grant.since.saturating_add(LEASE);
    one_after_the_other(grant.token, [grant.since, believed], ends)
}

/// Who is told that it has nothing has left nothing.
pub(crate) async fn nothing_stays_of_a_lost_answer(toy: Toy) -> Result<(), Failed> {
    let name = LockName::new("lock")?;
    let locks = Locks::new(Arc::new(toy.clone()))?;
    if locks.mutex(&name)?.try_lock().await.is_ok() {
        return Err("the answer did not get lost".into());
    }
    // What goes on in the background has come to its end then.
    locks.shutdown(Duration::from_secs(20)).await?;
    match toy.look(&name) {
        left if left.is_empty() => Ok(()),
        left => Err(format!("left behind: {left:?}").into()),
    }
}

/// When the store lets the next in, if what it says is left lasts so long: a little later, by as
/// much as this thread stands still, which is little beside what the mistakes make.
async fn lease_ends(
    toy: &Toy,
    name: &LockName,
    lasts: impl Fn(Duration) -> Duration,
) -> Result<Instant, Failed> {
    let state = toy.inspect(name).await?;
    let holder = state.holders.first().ok_or("a held lock without a holder")?;
    Ok(now().saturating_add(lasts(holder.remaining)))
}

/// That the one who believes for so long and one who is let in at the end of its lease do not
/// hold together.
fn one_after_the_other(
    token: FencingToken,
    believes: [Instant; 2],
    ends: Instant,
) -> Result<(), Failed> {
    let hold = |actor, token: FencingToken, [from, to]: [Instant; 2]| Event {
        actor,
        hold: token.get(),
        op: Op::Acquire(Mode::Exclusive),
        invoked: from,
        answer: Some((from, Reply::Acked { token: Some(token), until: Some(to) })),
    };
    let next = [ends, ends.saturating_add(LEASE)];
    let events = vec![hold(0, token, believes), hold(1, token.plus(1), next)];
    Ok(exclusion::check(&History { events, ended: Some(next[1]) })?)
}

fn now() -> Instant {
    Clock::Boot.now()
}
