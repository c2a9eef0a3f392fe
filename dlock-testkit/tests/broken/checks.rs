//! Checks for mistakes that no case of the suite can see. A correct store passes all of them.

use std::{sync::Arc, time::Duration};

use dlock_core::{
    AcquireRequest, Acquired, Backend, Clock, FencingToken, Instant, LockName, LockOptions, Locks,
    Mode,
};
use dlock_testkit::history::{Event, History, Op, Reply, exclusion};
use libtest_mimic::Failed;

use crate::{rules::SHIFT, toy::Toy};

/// So long that its margin is longer than these checks take, even on a machine that stops for a
/// while.
const LEASE: Duration = Duration::from_secs(1000);

/// The local deadline passes before the lease ends, even if the clock of the store is one percent
/// fast.
pub(crate) async fn the_deadline_passes_before_the_lease_of_a_fast_clock(
    toy: Toy,
) -> Result<(), Failed> {
    let name = LockName::new("lock")?;
    let locks =
        Locks::new(Arc::new(toy.another()))?.with_options(LockOptions::new().with_lease(LEASE))?;
    let guard = locks.mutex(&name)?.try_lock().await?.ok_or("a free lock is busy")?;
    let begun = now();
    let ends = lease_ends(&toy, &name, |remaining| remaining - remaining / 100).await?;
    let deadline = now().saturating_add(guard.remaining());
    check_no_overlap(guard.token(), [begun, deadline], ends)
}

/// If a held claim is acquired again, the local deadline of the answer passes before its lease ends.
pub(crate) async fn the_deadline_of_a_found_claim_passes_before_the_lease(
    toy: Toy,
) -> Result<(), Failed> {
    let request = AcquireRequest::new(LockName::new("lock")?, Mode::Exclusive, LEASE);
    toy.acquire(&request).await?;
    tokio::time::sleep(SHIFT).await;
    let Acquired::Granted(grant) = toy.acquire(&request).await? else {
        return Err("the repeated acquire of a held claim is not granted".into());
    };
    let ends = lease_ends(&toy, &request.name, |remaining| remaining).await?;
    let deadline = grant.since.saturating_add(LEASE);
    check_no_overlap(grant.token, [grant.since, deadline], ends)
}

/// If an acquire fails because its answer was lost, no claim remains in the store.
pub(crate) async fn no_claim_remains_after_a_lost_answer(toy: Toy) -> Result<(), Failed> {
    let name = LockName::new("lock")?;
    let locks = Locks::new(Arc::new(toy.clone()))?;
    if locks.mutex(&name)?.try_lock().await.is_ok() {
        return Err("the answer was not lost".into());
    }
    // Waits for the cancellation, which runs in the background.
    locks.shutdown(Duration::from_secs(20)).await?;
    match toy.records(&name) {
        records if records.is_empty() => Ok(()),
        records => Err(format!("records remain: {records:?}").into()),
    }
}

/// Returns the time at which the store grants the lock to the next claim, if the remaining lease that
/// it reports has the length `lasts`. A pause of this thread makes it later, but by much less than the
/// mistakes do.
async fn lease_ends(
    toy: &Toy,
    name: &LockName,
    lasts: impl Fn(Duration) -> Duration,
) -> Result<Instant, Failed> {
    let state = toy.inspect(name).await?;
    let holder = state.holders.first().ok_or("a held lock without a holder")?;
    Ok(now().saturating_add(lasts(holder.remaining)))
}

/// Checks that a hold from the grant to the local deadline does not overlap with that of the next
/// claim, which is granted when the lease ends.
fn check_no_overlap(token: FencingToken, hold: [Instant; 2], ends: Instant) -> Result<(), Failed> {
    let event = |actor, token: FencingToken, [from, to]: [Instant; 2]| Event {
        actor,
        hold: token.get(),
        op: Op::Acquire(Mode::Exclusive),
        invoked: from,
        answer: Some((from, Reply::Acked { token: Some(token), until: Some(to) })),
    };
    let next = [ends, ends.saturating_add(LEASE)];
    let events = vec![event(0, token, hold), event(1, token.plus(1), next)];
    Ok(exclusion::check(&History { events, ended: Some(next[1]) })?)
}

fn now() -> Instant {
    Clock::Boot.now()
}
