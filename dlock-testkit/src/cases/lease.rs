//! Leases: renewal extends them, and the store's clock ends them.

use std::time::Duration;

use dlock_core::{
    AcquireRequest, Acquired, DynBackend, Ended, Fairness, FencingToken, Grant, Instant, LockName,
    LockOptions, Mode, OrphanRelease, Permits, Renew, Renewal, Renewed,
};
use futures_util::future::try_join_all;

use crate::{
    Stop, Verdict,
    case::{Crew, Cx, now, pass},
    faulty_backend::FaultyBackend,
    polls::late,
    stop::{ensure, ensure_eq, ensure_safe},
    suite::runtime,
    verbs::{
        alone, ask, downgrade, leased, queue, release, release_in_vain, renew, renew_last, take,
        tried,
    },
};

/// A lease that does not end during a case.
const LONG: Duration = Duration::from_secs(300);
/// The largest number of renewals that the core sends in one call.
const BATCH: usize = 500;

pub(crate) async fn the_next_claim_is_granted_when_a_lease_ends(cx: Cx) -> Verdict {
    let (a, locks, name) = (cx.backend().await?, cx.locks().await?, cx.name("lock"));
    let dead = leased(alone(&name), cx.lease());
    take(&a, &dead).await?;
    locks.mutex(&name)?.lock().await?.release().await?;
    release_in_vain(&a, &dead).await
}

pub(crate) async fn a_try_takes_a_lock_whose_lease_ended(cx: Cx) -> Verdict {
    let (a, b, name) = (cx.backend().await?, cx.backend().await?, cx.name("lock"));
    let (dead, next) = (leased(alone(&name), cx.lease()), alone(&name));
    let first = take(&a, &dead).await?;
    pass(cx.lease() * 2).await;
    let second = tried(&b, &next).await?.ok_or("the lock of a lease that ended is busy")?;
    ensure_safe!(second.token > first.token, "{second:?} after {first:?}");
    release_in_vain(&a, &dead).await?;
    release(&b, &next).await
}

pub(crate) async fn a_held_lock_outlives_its_lease(cx: Cx) -> Verdict {
    let locks = cx.locks_with(cx.renewing()).await?;
    let (other, name) = (cx.locks().await?, cx.name("lock"));
    let guard = locks.mutex(&name)?.lock().await?;
    let end = now().saturating_add(cx.renewed() * 3 / 2);
    while now() < end {
        pass(cx.renewed() / 10).await;
        guard.check()?;
        ensure!(other.mutex(&name)?.try_lock().await?.is_none(), "a renewed lock is free");
    }
    guard.release().await?;
    Ok(())
}

pub(crate) async fn many_locks_are_renewed_together(cx: Cx) -> Verdict {
    let meddled = FaultyBackend::new(cx.backend().await?);
    let locks = cx.locks_over(meddled.clone(), cx.renewing())?;
    let mut guards = Vec::new();
    for i in 0..30 {
        guards.push(locks.mutex(cx.name(&i.to_string()))?.lock().await?);
    }
    pass(cx.renewed() * 3 / 2).await;
    for guard in guards {
        guard.check()?;
        guard.release().await?;
    }
    ensure!(meddled.largest_batch() > 1, "thirty locks are renewed one by one");
    Ok(())
}

pub(crate) async fn without_renewal_the_lock_ends_with_its_lease(cx: Cx) -> Verdict {
    ends_by_itself(&cx, Renew::Never).await
}

pub(crate) async fn renewal_ends_at_its_limit(cx: Cx) -> Verdict {
    ends_by_itself(&cx, Renew::For(cx.lease() * 2)).await
}

async fn ends_by_itself(cx: &Cx, renew: Renew) -> Verdict {
    let locks = cx.locks_with(cx.brief().with_renew(renew)).await?;
    let (other, name) = (cx.locks().await?, cx.name("lock"));
    let guard = locks.mutex(&name)?.lock().await?;
    cx.within("the guard is lost", guard.lost()).await?;
    ensure!(guard.check().is_err(), "a lost guard passes the check");
    other.mutex(&name)?.lock().await?.release().await?;
    Ok(())
}

pub(crate) async fn the_lock_of_a_dead_client_expires(cx: Cx) -> Verdict {
    let (other, name) = (cx.locks().await?, cx.name("lock"));
    let doomed = runtime()?;
    let (inner, lock) = (cx.clone(), name.clone());
    let task = doomed.spawn(async move {
        let locks = inner.locks_with(inner.brief()).await?;
        let guard = locks.mutex(&lock)?.lock().await?;
        let token = guard.token();
        // The guard is neither released nor dropped, as in a process that is killed.
        std::mem::forget((guard, locks));
        Ok::<_, Stop>(token)
    });
    let first = cx.within("the doomed client has the lock", task).await???;
    doomed.shutdown_background();
    let guard = other.mutex(&name)?.lock().await?;
    ensure_safe!(guard.token() > first, "the token does not grow over a dead client");
    guard.release().await?;
    Ok(())
}

pub(crate) async fn an_expired_claim_is_not_renewed(cx: Cx) -> Verdict {
    let (a, b, name) = (cx.backend().await?, cx.backend().await?, cx.name("lock"));
    let (dead, next) = (leased(alone(&name), cx.lease()), alone(&name));
    take(&a, &dead).await?;
    pass(cx.lease() * 2).await;
    ensure_eq!(renew(&a, &dead, dead.lease).await?, Renewed::Lost, "a renewal after the end");
    take(&b, &next).await?;
    ensure_eq!(renew(&a, &dead, dead.lease).await?, Renewed::Lost, "a renewal of another's lock");
    release(&b, &next).await
}

pub(crate) async fn a_renewal_restarts_the_lease(cx: Cx) -> Verdict {
    let (a, b, name) = (cx.backend().await?, cx.backend().await?, cx.name("lock"));
    let (held, next) = (leased(alone(&name), cx.renewed()), alone(&name));
    take(&a, &held).await?;
    ensure_eq!(renew(&a, &held, Duration::from_secs(300)).await?, Renewed::Kept, "the renewal");
    pass(cx.renewed() + cx.lease()).await;
    ensure!(tried(&b, &next).await?.is_none(), "a renewed lease ended at its first end");
    let asked = now();
    let last = renew_last(&a, &held, cx.lease()).await?;
    // An answer that takes longer than the lease may say that the lease has ended.
    let is_kept = last == Renewed::Kept || now().since(asked) >= cx.lease();
    ensure!(is_kept, "the last renewal: {last:?}");
    cx.free(&b, &name).await
}

/// A renewal that was given up and sent again may arrive after the second one, and so may an acquire
/// that was sent again.
pub(crate) async fn a_late_request_does_not_shorten_the_lease(cx: Cx) -> Verdict {
    let (a, b, name) = (cx.backend().await?, cx.backend().await?, cx.name("lock"));
    let held = leased(alone(&name), cx.renewed());
    take(&a, &held).await?;
    ensure_eq!(renew(&a, &held, LONG).await?, Renewed::Kept, "the renewal");
    ensure_eq!(renew(&a, &held, cx.lease()).await?, Renewed::Kept, "the late renewal");
    pass(cx.lease() * 2).await;
    still_held(&b, &name).await?;
    take(&a, &leased(held.clone(), cx.lease())).await?;
    pass(cx.lease() * 2).await;
    still_held(&b, &name).await?;
    release(&a, &held).await
}

/// After the last renewal, no other one extends the lease. Of two attempts of the last renewal, the
/// earlier end counts, whichever arrives first.
pub(crate) async fn no_renewal_extends_the_lease_after_the_last(cx: Cx) -> Verdict {
    let (a, b, name) = (cx.backend().await?, cx.backend().await?, cx.name("lock"));
    let held = alone(&name);
    take(&a, &held).await?;
    ensure_eq!(renew_last(&a, &held, LONG).await?, Renewed::Kept, "an attempt");
    ensure_eq!(renew_last(&a, &held, cx.renewed()).await?, Renewed::Kept, "the last renewal");
    ensure_eq!(renew_last(&a, &held, LONG).await?, Renewed::Kept, "an attempt that is late");
    ensure_eq!(renew(&a, &held, LONG).await?, Renewed::Kept, "an earlier renewal");
    take(&a, &held).await?;
    cx.free(&b, &name).await
}

/// The last renewal may also extend the lease, and so do later attempts of it.
pub(crate) async fn the_last_renewal_extends_the_lease(cx: Cx) -> Verdict {
    let (a, b, name) = (cx.backend().await?, cx.backend().await?, cx.name("lock"));
    let held = leased(alone(&name), cx.renewed());
    take(&a, &held).await?;
    ensure_eq!(renew_last(&a, &held, LONG).await?, Renewed::Kept, "the last renewal");
    ensure_eq!(renew(&a, &held, cx.lease()).await?, Renewed::Kept, "an earlier renewal");
    take(&a, &leased(held.clone(), cx.lease())).await?;
    pass(cx.renewed() + cx.lease()).await;
    still_held(&b, &name).await?;
    release(&a, &held).await
}

async fn still_held(backend: &DynBackend, name: &LockName) -> Verdict {
    let state = backend.inspect(name).await?;
    ensure!(!state.holders.is_empty(), "the lease has ended too early: {state:?}");
    Ok(())
}

pub(crate) async fn renewals_are_answered_one_by_one(cx: Cx) -> Verdict {
    let (backend, names) = (cx.backend().await?, [cx.name("a"), cx.name("b"), cx.name("c")]);
    let [held, gone, never] = names.each_ref().map(alone);
    let also_held = alone(&cx.name("d"));
    for request in [&held, &gone, &also_held] {
        take(&backend, request).await?;
    }
    release(&backend, &gone).await?;
    let renewals = [&gone, &held, &never, &also_held]
        .map(|request| Renewal::new(request.as_claim(), request.mode, request.lease));
    let answers = backend.renew(&renewals).await?;
    use Renewed::{Kept, Lost};
    ensure_eq!(answers, [Lost, Kept, Lost, Kept], "the answers");
    ensure_eq!(backend.renew(&[]).await?, [], "the answers to nothing");
    release(&backend, &held).await?;
    release(&backend, &also_held).await
}

/// A store may renew a batch with one statement, and each claim of it still has its own lease.
pub(crate) async fn each_renewal_of_a_batch_has_its_own_lease(cx: Cx) -> Verdict {
    one_of_two_ends(&cx, false).await
}

pub(crate) async fn only_the_last_renewals_of_a_batch_are_last(cx: Cx) -> Verdict {
    one_of_two_ends(&cx, true).await
}

/// Renews two claims in one batch, in both orders. The lease of one of them ends.
async fn one_of_two_ends(cx: &Cx, is_last: bool) -> Verdict {
    let (a, b) = (cx.backend().await?, cx.backend().await?);
    let in_order = async |is_reversed: bool| {
        let request = |hint| leased(alone(&cx.name(hint)), cx.renewed());
        let [ending, held] = ["ending", "held"].map(request);
        take(&a, &ending).await?;
        take(&a, &held).await?;
        let renewal = |of: &AcquireRequest, lease| Renewal::new(of.as_claim(), of.mode, lease);
        let mut batch = match is_last {
            true => [renewal(&ending, cx.renewed()).as_last(), renewal(&held, cx.renewed())],
            false => [renewal(&ending, cx.renewed()), renewal(&held, LONG)],
        };
        if is_reversed {
            batch.reverse();
        }
        ensure_eq!(a.renew(&batch).await?, [Renewed::Kept; 2], "the answers");
        if is_last {
            // Only a claim that has had its last renewal is not extended by this.
            ensure_eq!(renew(&a, &held, LONG).await?, Renewed::Kept, "the next renewal");
        }
        cx.free(&b, &ending.name).await?;
        // If both ended, the other one would end within this time, even if the store renews one
        // some time after the other.
        pass(cx.renewed()).await;
        still_held(&b, &held.name).await?;
        release(&a, &held).await
    };
    tokio::try_join!(in_order(false), in_order(true))?;
    Ok(())
}

/// After a failover that has lost a grant, the claim of the former holder may wait again. If its
/// renewal were confirmed, two clients would believe that they hold the lock.
pub(crate) async fn a_renewal_of_a_waiter_is_not_kept(cx: Cx) -> Verdict {
    let (a, b, name) = (cx.backend().await?, cx.backend().await?, cx.name("lock"));
    let (holder, waiter) = (alone(&name), alone(&name));
    let other = alone(&cx.name("other"));
    take(&a, &holder).await?;
    take(&b, &other).await?;
    queue(&b, &waiter).await?;
    for mode in [Mode::Exclusive, Mode::Shared] {
        let renewal = |of: &AcquireRequest, mode| Renewal::new(of.as_claim(), mode, of.lease);
        let alone = b.renew(&[renewal(&waiter, mode)]).await?;
        ensure!(alone != [Renewed::Kept], "a renewal of a waiter as {mode:?}: {alone:?}");
        let batch = [renewal(&other, other.mode), renewal(&waiter, mode)];
        let answers = b.renew(&batch).await?;
        let is_lost =
            matches!(answers[..], [Renewed::Kept, of_waiter] if of_waiter != Renewed::Kept);
        ensure!(is_lost, "renewals of a holder and of a waiter as {mode:?}: {answers:?}");
    }
    release(&b, &other).await?;
    ensure_eq!(renew(&a, &holder, holder.lease).await?, Renewed::Kept, "the holder's renewal");
    let state = a.inspect(&name).await?;
    let holds = state.holders.iter().map(|claim| claim.claim);
    ensure!(holds.eq([holder.claim]), "after the renewal of a waiter: {state:?}");
    release(&a, &holder).await?;
    cx.within("the waiter is granted", b.granted(&waiter)).await??;
    ensure_eq!(renew(&b, &waiter, waiter.lease).await?, Renewed::Kept, "its renewal");
    release(&b, &waiter).await
}

/// A store with a queue that loses a grant, but not the place in the queue, grants the claim anew,
/// perhaps after others. The renewals of its holder then have the token of the earlier grant.
pub(crate) async fn a_renewal_of_an_earlier_grant_is_not_kept(cx: Cx) -> Verdict {
    let backend = cx.backend().await?;
    let mut modes = vec![Mode::Exclusive, Mode::Shared];
    if backend.guarantees().permits >= Permits::Counted {
        modes.push(Mode::permits(2, 3)?);
    }
    let other = alone(&cx.name("other"));
    take(&backend, &other).await?;
    for (n, mode) in modes.into_iter().enumerate() {
        let name = cx.name(&n.to_string());
        let [former, held] = [ask(&name, mode), ask(&name, mode)];
        let earlier = take(&backend, &former).await?.token;
        release(&backend, &former).await?;
        let token = take(&backend, &held).await?.token;
        let renewal = |mode, token: Option<FencingToken>| {
            Renewal::new(held.as_claim(), mode, held.lease).with_token(token)
        };
        let weaker = match mode {
            Mode::Permits { of, .. } => Mode::permits(1, of)?,
            _ => Mode::Shared,
        };
        for mode in [mode, weaker] {
            let of_other = Renewal::new(other.as_claim(), other.mode, other.lease);
            let batch = [of_other, renewal(mode, Some(earlier))];
            for renewals in [&batch[1..], &batch[..]] {
                let answers = backend.renew(renewals).await?;
                let is_lost = matches!(answers[..], [.., Renewed::Lost | Renewed::Forgotten]);
                ensure_safe!(is_lost, "{answers:?}, last to an earlier grant, as {mode:?}");
            }
        }
        for token in [Some(token), None] {
            let answer = backend.renew(&[renewal(mode, token)]).await?;
            ensure_eq!(answer, [Renewed::Kept], "a renewal of the grant itself");
        }
        release(&backend, &held).await?;
    }
    release(&backend, &other).await
}

pub(crate) async fn all_renewals_of_a_large_batch_are_done(cx: Cx) -> Verdict {
    let backend = cx.backend().await?;
    let requests: Vec<_> = (0..BATCH).map(|n| alone(&cx.name(&n.to_string()))).collect();
    for some in requests.chunks(20) {
        try_join_all(some.iter().map(|request| take(&backend, request))).await?;
        cx.goes_on();
    }
    // Released claims among the others show whether the answers belong to their renewals.
    let (gone, held): (Vec<_>, Vec<_>) = requests.iter().enumerate().partition(|(n, _)| n % 7 == 6);
    for some in gone.chunks(20) {
        try_join_all(some.iter().map(|(_, request)| release(&backend, request))).await?;
    }
    let renewal = |request: &AcquireRequest| Renewal::new(request.as_claim(), request.mode, LONG);
    let answers = backend.renew(&requests.iter().map(renewal).collect::<Vec<_>>()).await?;
    let expected = |n: usize| if n % 7 == 6 { Renewed::Lost } else { Renewed::Kept };
    let expected: Vec<_> = (0..BATCH).map(expected).collect();
    let wrong = answers.iter().zip(&expected).position(|(answer, is)| answer != is);
    ensure_eq!((answers.len(), wrong), (BATCH, None), "the answers, and the first wrong one");
    // The last renewals end all of them.
    let last = |(_, request): &(usize, &AcquireRequest)| {
        Renewal::new(request.as_claim(), request.mode, cx.lease()).as_last()
    };
    let answers = backend.renew(&held.iter().map(last).collect::<Vec<_>>()).await?;
    ensure_eq!(answers.len(), held.len(), "the answers to the last renewals");
    for (_, request) in held {
        cx.free(&backend, &request.name).await?;
        cx.goes_on();
    }
    Ok(())
}

pub(crate) async fn the_longest_lease_is_kept_whole(cx: Cx) -> Verdict {
    let (client, taken, renewed) = (cx.backend().await?, cx.name("taken"), cx.name("renewed"));
    let longest = LockOptions::MAX_LEASE.min(client.longest_lease());
    let (taken, renewed) = (leased(alone(&taken), longest), alone(&renewed));
    take(&client, &taken).await?;
    take(&client, &leased(renewed.clone(), longest / 8)).await?;
    ensure_eq!(renew(&client, &renewed, longest).await?, Renewed::Kept, "the renewal");
    for request in [&taken, &renewed] {
        let state = client.inspect(&request.name).await?;
        let holder = state.holders.first().ok_or("a long lease has ended")?;
        let range = longest / 2..=longest * 2;
        ensure!(range.contains(&holder.remaining), "of {longest:?} remain {:?}", holder.remaining);
        release(&client, request).await?;
    }
    Ok(())
}

pub(crate) async fn a_waiter_without_heartbeats_leaves_the_queue(cx: Cx) -> Verdict {
    let (a, locks, name) = (cx.backend().await?, cx.locks().await?, cx.name("lock"));
    let (holder, dead) = (alone(&name), leased(alone(&name), cx.lease()));
    take(&a, &holder).await?;
    queue(&a, &dead).await?;
    let mutex = locks.mutex(&name)?;
    let mut crew = Crew::new();
    crew.go(async move { Ok(mutex.lock().await?.release().await.map(|_| ())?) });
    cx.until("the living waits alone", || async {
        let waiters = a.inspect(&name).await?.waiters;
        Ok(waiters.len() == 1 && waiters[0].claim != dead.claim)
    })
    .await?;
    release(&a, &holder).await?;
    crew.done(&cx).await
}

pub(crate) async fn the_local_deadline_passes_before_the_next_grant(cx: Cx) -> Verdict {
    let (a, b, name) = (cx.backend().await?, cx.backend().await?, cx.name("lock"));
    let dead = leased(alone(&name), cx.renewed());
    let grant = take(&a, &dead).await?;
    let deadline = grant.since.saturating_add(dead.lease);
    none_before(&cx, &a, &b, &name, deadline).await
}

pub(crate) async fn the_deadline_after_a_hand_off_ends_before_the_next_grant(cx: Cx) -> Verdict {
    let (a, b, name) = (cx.backend().await?, cx.backend().await?, cx.name("lock"));
    let (holder, dead) = (alone(&name), leased(alone(&name), cx.renewed()));
    take(&a, &holder).await?;
    queue(&a, &dead).await?;
    // The lease begins with the grant, not when the claim joins the queue.
    pass(cx.renewed() / 2).await;
    release(&b, &holder).await?;
    let grant = cx.within("the waiter is granted", a.granted(&dead)).await?;
    let deadline = grant?.since.saturating_add(dead.lease);
    none_before(&cx, &a, &b, &name, deadline).await
}

pub(crate) async fn a_late_answer_does_not_move_the_deadline(cx: Cx) -> Verdict {
    let (a, b, name) = (cx.backend().await?, cx.backend().await?, cx.name("lock"));
    let dead = leased(alone(&name), cx.renewed());
    let grant = granted(late(cx.late(), a.acquire(&dead)).await?)?;
    none_before(&cx, &a, &b, &name, grant.since.saturating_add(dead.lease)).await?;
    // The same in a request for several locks.
    let dead = leased(alone(&name), cx.renewed());
    let Some(answer) = a.acquire_all(std::slice::from_ref(&dead)) else { return Ok(()) };
    for answer in late(cx.late(), answer).await? {
        let deadline = granted(answer)?.since.saturating_add(dead.lease);
        none_before(&cx, &a, &b, &name, deadline).await?;
    }
    Ok(())
}

pub(crate) async fn a_late_answer_after_a_wait_does_not_move_the_deadline(cx: Cx) -> Verdict {
    let (a, b, name) = (cx.backend().await?, cx.backend().await?, cx.name("lock"));
    let (holder, dead) = (alone(&name), leased(alone(&name), cx.renewed()));
    take(&b, &holder).await?;
    queue(&a, &dead).await?;
    let waiting = late(cx.late(), a.granted(&dead));
    let (grant, released) = tokio::join!(waiting, release(&b, &holder));
    released?;
    none_before(&cx, &a, &b, &name, grant?.since.saturating_add(dead.lease)).await
}

/// A client that has lost an answer sends the acquire again, and counts the lease from the second
/// answer. So the store extends the lease, or answers when it began.
pub(crate) async fn a_hold_acquired_again_outlives_its_deadline(cx: Cx) -> Verdict {
    let (a, b) = (cx.backend().await?, cx.backend().await?);
    let request = |hint| leased(alone(&cx.name(hint)), cx.renewed());
    let [free, waited, several] = ["free", "waited", "several"].map(request);
    let taken = async {
        take(&a, &free).await?;
        pass(cx.renewed() / 2).await;
        let again = take(&a, &free).await?;
        none_before(&cx, &a, &b, &free.name, again.since.saturating_add(free.lease)).await
    };
    let after_a_wait = async {
        if cx.guarantees().fairness < Fairness::Fifo {
            return Ok(());
        }
        let holder = alone(&waited.name);
        take(&b, &holder).await?;
        queue(&a, &waited).await?;
        release(&b, &holder).await?;
        cx.within("the waiter is granted", a.granted(&waited)).await??;
        pass(cx.renewed() / 2).await;
        let again = take(&a, &waited).await?;
        none_before(&cx, &a, &b, &waited.name, again.since.saturating_add(waited.lease)).await
    };
    let among_several = async {
        let requests = std::slice::from_ref(&several);
        let Some(first) = a.acquire_all(requests) else { return Ok(()) };
        granted(first.await?.pop().ok_or("no answer")?)?;
        pass(cx.renewed() / 2).await;
        let again = a.acquire_all(requests).ok_or("several are acquired at once, or never")?;
        let again = granted(again.await?.pop().ok_or("no answer")?)?;
        none_before(&cx, &a, &b, &several.name, again.since.saturating_add(several.lease)).await
    };
    tokio::try_join!(taken, after_a_wait, among_several)?;
    Ok(())
}

pub(crate) async fn a_renewed_lease_lasts_from_the_call(cx: Cx) -> Verdict {
    let (a, b, name) = (cx.backend().await?, cx.backend().await?, cx.name("lock"));
    let dead = leased(alone(&name), cx.renewed());
    take(&a, &dead).await?;
    pass(cx.renewed() / 3).await;
    let called = a.clock().now();
    let renewal = Renewal::new(dead.as_claim(), dead.mode, cx.renewed());
    let renewals = [renewal];
    ensure_eq!(late(cx.late(), a.renew(&renewals)).await?, [Renewed::Kept], "the renewal");
    none_before(&cx, &a, &b, &name, called.saturating_add(cx.renewed())).await
}

/// The holder counts a whole lease from its request for the downgrade.
pub(crate) async fn a_downgraded_lease_lasts_from_the_call(cx: Cx) -> Verdict {
    let (a, b, name) = (cx.backend().await?, cx.backend().await?, cx.name("lock"));
    let dead = leased(alone(&name), cx.renewed() * 3 / 2);
    take(&a, &dead).await?;
    pass(cx.renewed() / 2).await;
    let called = a.clock().now();
    ensure_eq!(downgrade(&a, &dead).await?, Renewed::Kept, "the downgrade");
    none_before(&cx, &a, &b, &name, called.saturating_add(dead.lease)).await
}

fn granted(answer: Acquired) -> Result<Grant, Stop> {
    match answer {
        Acquired::Granted(grant) => Ok(grant),
        other => Err(Stop::failed(format!("a free lock is {other:?}"))),
    }
}

pub(crate) async fn a_lock_delay_keeps_others_out_after_the_lease(cx: Cx) -> Verdict {
    let (client, other, name) = (cx.backend().await?, cx.backend().await?, cx.name("lock"));
    let delay = lock_delay(&cx, &client);
    let options = cx.brief().with_renew(Renew::Never).with_lock_delay(delay);
    let locks = cx.locks_over(client.clone(), options)?;
    let kept = (cx.lease() + delay).min(client.longest_lease());
    let sent = client.clock().now();
    let guard = locks.mutex(&name)?.lock().await?;
    ensure!(guard.remaining() <= kept - delay, "{:?} remain", guard.remaining());
    let ended = cx.within("the guard is lost", guard.lost()).await?;
    ensure_eq!(ended, Ended::Expired, "the end");
    none_before(&cx, &client, &other, &name, sent.saturating_add(kept)).await
}

pub(crate) async fn a_release_ends_the_lock_delay(cx: Cx) -> Verdict {
    let (client, other, name) = (cx.backend().await?, cx.locks().await?, cx.name("lock"));
    let delayed = cx.renewing().with_lock_delay(lock_delay(&cx, &client));
    for renew in [Renew::Auto, Renew::Never] {
        let locks = cx.locks_over(client.clone(), delayed.with_renew(renew))?;
        let guard = locks.mutex(&name)?.lock().await?;
        if renew == Renew::Never {
            // The owner may also release the lock after it was lost.
            cx.within("the guard is lost", guard.lost()).await?;
        }
        guard.release().await?;
        let next = other.mutex(&name)?.try_lock().await?;
        next.ok_or("a released lock is busy")?.release().await?;
    }
    Ok(())
}

/// Returns a lock-delay that the store supports and that is longer than a short pause of the
/// machine.
fn lock_delay(cx: &Cx, client: &DynBackend) -> Duration {
    cx.renewed().min(client.longest_lease() / 2)
}

/// Polls until the store has ended the hold. The store must not end it before the holder treats it
/// as lost.
async fn none_before(
    cx: &Cx,
    holders: &DynBackend,
    other: &DynBackend,
    name: &LockName,
    deadline: Instant,
) -> Verdict {
    let ending = async {
        while !other.inspect(name).await?.holders.is_empty() {
            tokio::task::yield_now().await;
        }
        Ok::<_, Stop>(holders.clock().now())
    };
    let limit = cx.bound() + cx.renewed() * 2;
    let late = |_| Stop::failed(format!("the lease ends: not within {limit:?}"));
    let ended = tokio::time::timeout(limit, ending).await.map_err(late)??;
    ensure!(ended >= deadline, "ended {:?} before the local deadline", deadline.since(ended));
    let next = alone(name);
    tried(other, &next).await?.ok_or("a lock without a holder is busy")?;
    release(other, &next).await
}

pub(crate) async fn the_remaining_time_is_at_most_the_lease(cx: Cx) -> Verdict {
    let (locks, lease) = (cx.locks_with(cx.renewing()).await?, cx.renewed());
    let name = cx.name("lock");
    let guard = locks.mutex(&name)?.lock().await?;
    for _ in 0..20 {
        ensure!(guard.remaining() <= lease, "{:?} remain", guard.remaining());
        if let Some(holder) = locks.inspect(&name).await?.holders.first() {
            ensure!(holder.remaining <= lease, "the store says {:?}", holder.remaining);
        }
        pass(lease / 20).await;
    }
    guard.release().await?;
    Ok(())
}

pub(crate) async fn the_remaining_time_shrinks(cx: Cx) -> Verdict {
    if cx.guarantees().orphan_release == OrphanRelease::SessionEnd {
        return Err(Stop::ruled_out("only the client of a claim knows the end of its lease"));
    }
    let (a, b, held) = (cx.backend().await?, cx.backend().await?, alone(&cx.name("lock")));
    take(&a, &held).await?;
    let remaining = || async {
        let state = b.inspect(&held.name).await?;
        Ok::<_, Stop>(state.holders.first().ok_or("a held lock without a holder")?.remaining)
    };
    let before = remaining().await?;
    pass(cx.lease()).await;
    let after = remaining().await?;
    ensure!(after < before, "{before:?} remain, and {:?} later {after:?}", cx.lease());
    release(&a, &held).await
}
