//! The verbs of the contract, each on its own.

use std::time::Duration;

use dlock_core::{AcquireRequest, DynBackend, ErrorKind, Mode, OrphanRelease, Renewed};

use crate::{
    Stop, Verdict,
    case::{Cx, now, pass},
    stop::{ensure, ensure_eq, ensure_safe},
    verbs::{
        alone, ask, downgrade, ensure_remembered, leased, queue, release, release_in_vain, renew,
        renew_last, take, tried,
    },
};

pub(crate) async fn a_free_lock_is_granted_at_once(cx: Cx) -> Verdict {
    let (backend, name) = (cx.backend().await?, cx.name("lock"));
    for mode in [Mode::Exclusive, Mode::Shared] {
        let request = ask(&name, mode);
        let grant = take(&backend, &request).await?;
        let now = backend.clock().now();
        ensure_eq!(grant.tokens, 1, "the tokens");
        ensure!(grant.since <= now, "the lease begins {:?} from now", grant.since.since(now));
        release(&backend, &request).await?;
    }
    Ok(())
}

pub(crate) async fn a_held_lock_is_queued_for_in_order(cx: Cx) -> Verdict {
    let (a, b, name) = (cx.backend().await?, cx.backend().await?, cx.name("lock"));
    let requests = [(); 4].map(|()| alone(&name));
    take(&a, &requests[0]).await?;
    for (i, request) in requests.iter().enumerate().skip(1) {
        queue(if i % 2 == 0 { &a } else { &b }, request).await?;
    }
    let waiting: Vec<_> = b.inspect(&name).await?.waiters.iter().map(|c| c.claim).collect();
    ensure_eq!(waiting, requests[1..].iter().map(|r| r.claim).collect::<Vec<_>>(), "the queue");
    for (request, next) in requests.iter().zip(&requests[1..]) {
        release(&a, request).await?;
        let holders = a.inspect(&name).await?.holders;
        let holders: Vec<_> = holders.iter().map(|c| c.claim).collect();
        ensure_eq!(holders, [next.claim], "the holders after a release");
    }
    release(&b, &requests[3]).await
}

pub(crate) async fn busy_leaves_no_trace(cx: Cx) -> Verdict {
    let (a, b, name) = (cx.backend().await?, cx.backend().await?, cx.name("lock"));
    let (holder, busy) = (alone(&name), alone(&name));
    take(&a, &holder).await?;
    let before = a.inspect(&name).await?;
    for _ in 0..3 {
        ensure_safe!(tried(&b, &busy).await?.is_none(), "a held lock is free");
    }
    let after = a.inspect(&name).await?;
    ensure_eq!(after.waiters, [], "the waiters after a try");
    // A try may use a token up.
    ensure!(after.last_token >= before.last_token, "the last token after a try");
    release_in_vain(&b, &busy).await?;
    release(&a, &holder).await?;
    ensure!(a.inspect(&name).await?.is_free(), "a try that was busy has the lock");
    Ok(())
}

pub(crate) async fn granted_answers_for_a_holder(cx: Cx) -> Verdict {
    let (a, b, name) = (cx.backend().await?, cx.backend().await?, cx.name("lock"));
    let [first, second] = [alone(&name), alone(&name)];
    take(&a, &first).await?;
    queue(&b, &second).await?;
    release(&a, &first).await?;
    // The claim was granted before a call waited for the grant.
    let grant = cx.within("the grant is told", b.granted(&second)).await??;
    let again = cx.within("the grant is told again", b.granted(&second)).await??;
    ensure_eq!(again.token, grant.token, "the token");
    ensure_eq!(take(&b, &second).await?.token, grant.token, "the token of an acquire");
    release(&b, &second).await
}

pub(crate) async fn a_waiter_that_lost_its_position_gets_an_error(cx: Cx) -> Verdict {
    let (a, b, name) = (cx.backend().await?, cx.backend().await?, cx.name("lock"));
    let [holder, waiter] = [alone(&name), alone(&name)];
    take(&a, &holder).await?;
    queue(&b, &waiter).await?;
    release(&a, &waiter).await?;
    let told = cx.within("the loss of the place is told", b.granted(&waiter)).await?;
    let error = told.err().ok_or("a claim that was cancelled is granted")?;
    ensure_eq!(error.kind(), ErrorKind::NotHeld, "{error}");
    ensure_eq!(a.inspect(&name).await?.waiters, [], "the waiters");
    release(&a, &holder).await
}

pub(crate) async fn a_release_cancels_a_waiter(cx: Cx) -> Verdict {
    let (a, b, name) = (cx.backend().await?, cx.backend().await?, cx.name("lock"));
    let [holder, first, second] = [alone(&name), alone(&name), alone(&name)];
    take(&a, &holder).await?;
    queue(&b, &first).await?;
    queue(&b, &second).await?;
    release(&b, &first).await?;
    release_in_vain(&b, &first).await?;
    release(&a, &holder).await?;
    cx.within("the other waiter is granted", b.granted(&second)).await??;
    release(&b, &second).await
}

pub(crate) async fn a_release_grants_one_claim(cx: Cx) -> Verdict {
    let (backend, name) = (cx.backend().await?, cx.name("lock"));
    let requests = [(); 5].map(|()| alone(&name));
    take(&backend, &requests[0]).await?;
    for request in &requests[1..] {
        queue(&backend, request).await?;
    }
    for (left, request) in (0..5).rev().zip(&requests) {
        release(&backend, request).await?;
        let state = backend.inspect(&name).await?;
        let seen = (state.holders.len(), state.waiters.len());
        ensure_eq!(seen, (left.min(1), left.max(1) - 1), "holders and waiters");
    }
    Ok(())
}

pub(crate) async fn a_cancellation_grants_claims_that_now_fit(cx: Cx) -> Verdict {
    let (backend, name) = (cx.backend().await?, cx.name("lock"));
    let [first, second] = [(); 2].map(|()| ask(&name, Mode::Shared));
    let writer = alone(&name);
    take(&backend, &first).await?;
    queue(&backend, &writer).await?;
    queue(&backend, &second).await?;
    release(&backend, &writer).await?;
    let holders = backend.inspect(&name).await?.holders.len();
    ensure_eq!(holders, 2, "the readers after the writer between them withdrew");
    release(&backend, &second).await?;
    release(&backend, &first).await
}

pub(crate) async fn a_downgrade_grants_claims_that_now_fit(cx: Cx) -> Verdict {
    let (backend, name) = (cx.backend().await?, cx.name("lock"));
    let (writer, reader) = (alone(&name), ask(&name, Mode::Shared));
    take(&backend, &writer).await?;
    queue(&backend, &reader).await?;
    ensure_eq!(downgrade(&backend, &writer).await?, Renewed::Kept, "the downgrade");
    ensure_eq!(backend.inspect(&name).await?.holders.len(), 2, "the readers after a downgrade");
    release(&backend, &writer).await?;
    release(&backend, &reader).await
}

pub(crate) async fn an_absent_claim_is_not_renewed(cx: Cx) -> Verdict {
    let (backend, name) = (cx.backend().await?, cx.name("lock"));
    let [holder, never, gone] = [alone(&name), alone(&name), alone(&name)];
    take(&backend, &gone).await?;
    release(&backend, &gone).await?;
    ensure_eq!(renew(&backend, &gone, gone.lease).await?, Renewed::Lost, "a released claim");
    ensure!(backend.inspect(&name).await?.is_free(), "a renewal takes a free lock");
    take(&backend, &holder).await?;
    ensure_eq!(renew(&backend, &never, never.lease).await?, Renewed::Lost, "an unknown claim");
    ensure_eq!(renew(&backend, &holder, holder.lease).await?, Renewed::Kept, "the holder");
    release(&backend, &holder).await
}

pub(crate) async fn inspect_shows_the_current_state(cx: Cx) -> Verdict {
    let (a, b, name) = (cx.backend().await?, cx.backend().await?, cx.name("lock"));
    let modes = [Mode::Shared, Mode::Shared, Mode::Exclusive, Mode::Shared];
    let requests = modes.map(|mode| leased(ask(&name, mode), Duration::from_secs(100)));
    let tokens = [take(&a, &requests[0]).await?.token, take(&b, &requests[1]).await?.token];
    queue(&a, &requests[2]).await?;
    queue(&b, &requests[3]).await?;
    for backend in [&a, &b] {
        let state = backend.inspect(&name).await?;
        let seen: Vec<_> = (state.holders.iter().chain(&state.waiters))
            .map(|claim| (claim.claim, claim.mode, claim.token))
            .collect();
        let known = [Some(tokens[0]), Some(tokens[1]), None, None];
        let expected: Vec<_> =
            requests.iter().zip(known).map(|(r, token)| (r.claim, r.mode, token)).collect();
        ensure_eq!(seen, expected, "what is seen");
        ensure_eq!(state.holders.len(), 2, "the holders");
        for claim in state.holders.iter().chain(&state.waiters) {
            let lease = Duration::from_secs(100);
            let fits = claim.remaining <= lease && claim.remaining > lease / 4;
            ensure!(fits, "{:?} of {lease:?} remain", claim.remaining);
        }
        ensure!(state.last_token >= Some(tokens[1]), "{:?}", state.last_token);
    }
    for request in requests.iter().rev() {
        release(&a, request).await?;
    }
    Ok(())
}

pub(crate) async fn inspect_changes_nothing(cx: Cx) -> Verdict {
    let (backend, name) = (cx.backend().await?, cx.name("lock"));
    let unknown = cx.name("unknown");
    for _ in 0..2 {
        let state = backend.inspect(&unknown).await?;
        ensure!(state.is_free(), "nobody asked for it, and {state:?}");
    }
    let [dead, waiter] = [alone(&name), alone(&name)];
    take(&backend, &dead).await?;
    queue(&backend, &waiter).await?;
    renew_last(&backend, &dead, cx.lease()).await?;
    pass(cx.lease() * 2).await;
    let state = backend.inspect(&name).await?;
    let stays = state.holders.iter().all(|claim| claim.claim != dead.claim);
    ensure!(stays, "a lease that ended is shown: {state:?}");
    cx.within("the waiter is granted", backend.granted(&waiter)).await??;
    release(&backend, &waiter).await
}

pub(crate) async fn the_last_token_outlives_its_claim(cx: Cx) -> Verdict {
    if cx.guarantees().orphan_release == OrphanRelease::SessionEnd {
        return Err(Stop::ruled_out("the tokens of ended claims are not recorded"));
    }
    let (backend, name) = (cx.backend().await?, cx.name("lock"));
    let mut last = None;
    for ends in [true, false] {
        let request = leased(alone(&name), if ends { cx.lease() } else { cx.renewed() });
        let token = take(&backend, &request).await?.token;
        ensure_remembered(&backend.inspect(&name).await?, Some(token))?;
        match ends {
            true => pass(cx.lease() * 2).await,
            false => release(&backend, &request).await?,
        }
        last = last.max(Some(token));
        ensure_remembered(&backend.inspect(&name).await?, last)?;
    }
    Ok(())
}

pub(crate) async fn all_clients_name_the_same_store(cx: Cx) -> Verdict {
    let (a, b) = (cx.backend().await?, cx.backend().await?);
    ensure_eq!(a.store(), b.store(), "the store");
    for hint in ["a", "b", "c"] {
        let name = cx.name(hint);
        ensure_eq!(a.shard(&name), b.shard(&name), "the shard of a name");
    }
    Ok(())
}

pub(crate) async fn a_claim_grows_older_and_no_renewal_makes_it_younger(cx: Cx) -> Verdict {
    let (backend, name) = (cx.backend().await?, cx.name("lock"));
    let (request, time) = (alone(&name), cx.lease());
    take(&backend, &request).await?;
    let mut least = age(&backend, &request).await?;
    for _ in 0..2 {
        pass(time).await;
        renew(&backend, &request, request.lease).await?;
        let age = age(&backend, &request).await?;
        // The age is measured by the store's clock, which is not this machine's.
        ensure!(age >= least + time / 2, "{time:?} after it was {least:?} old it is {age:?}");
        least = age;
    }
    release(&backend, &request).await
}

pub(crate) async fn a_claim_is_no_older_than_its_grant(cx: Cx) -> Verdict {
    let (a, b, name) = (cx.backend().await?, cx.backend().await?, cx.name("lock"));
    let mut known = false;
    // A client that has held the lock before may use a shorter path to acquire it again.
    for client in [&a, &a, &b, &a] {
        let (request, asked) = (alone(&name), now());
        take(client, &request).await?;
        pass(Duration::from_millis(10)).await;
        let state = b.inspect(&name).await?;
        let (age, most) = (state.holders.first().and_then(|holder| holder.age), asked);
        let most = now().since(most) + Duration::from_millis(100);
        ensure!(age.is_none_or(|age| age <= most), "{age:?} old, {most:?} after it was asked for");
        known |= age.is_some();
        release(client, &request).await?;
        pass(Duration::from_secs(1)).await;
    }
    if known { Ok(()) } else { Err(Stop::ruled_out(NO_AGE)) }
}

/// The reason why the age of claims is not tested.
const NO_AGE: &str = "this store does not know how old a claim is";

/// Returns the age of the claim that holds the lock, or rules the case out.
async fn age(backend: &DynBackend, request: &AcquireRequest) -> Result<Duration, Stop> {
    let state = backend.inspect(&request.name).await?;
    let holder = state.holders.iter().find(|holder| holder.claim == request.claim);
    let holder = holder.ok_or_else(|| Stop::failed("the holder is not seen"))?;
    holder.age.ok_or_else(|| Stop::ruled_out(NO_AGE))
}

pub(crate) async fn a_waiter_learns_that_a_lease_ended(cx: Cx) -> Verdict {
    let (a, b, name) = (cx.backend().await?, cx.backend().await?, cx.name("lock"));
    let [dead, waiter] = [alone(&name), alone(&name)];
    let first = take(&a, &dead).await?;
    queue(&b, &waiter).await?;
    // The lease ends some time after the wait has begun.
    renew_last(&a, &dead, cx.renewed()).await?;
    let grant = cx.within("the waiter is granted", b.granted(&waiter)).await??;
    ensure_safe!(grant.token > first.token, "{grant:?} after {first:?}");
    release_in_vain(&a, &dead).await?;
    release(&b, &waiter).await
}

pub(crate) async fn a_waiter_keeps_its_position_for_as_long_as_it_waits(cx: Cx) -> Verdict {
    let (a, b, name) = (cx.backend().await?, cx.backend().await?, cx.name("lock"));
    let (holder, waiter) = (alone(&name), leased(alone(&name), cx.renewed()));
    let last = alone(&name);
    take(&a, &holder).await?;
    queue(&b, &waiter).await?;
    queue(&a, &last).await?;
    let (grant, released) =
        tokio::join!(cx.within("the waiter is granted", b.granted(&waiter)), async {
            pass(cx.renewed() * 3 / 2).await;
            release(&a, &holder).await
        });
    released?;
    grant??;
    release(&b, &waiter).await?;
    cx.within("the last is granted", a.granted(&last)).await??;
    release(&a, &last).await
}

pub(crate) async fn no_wake_up_is_lost(cx: Cx) -> Verdict {
    let (a, b, name) = (cx.backend().await?, cx.backend().await?, cx.name("lock"));
    let mut held = alone(&name);
    take(&a, &held).await?;
    for round in 0..cx.effort(60) {
        let backend = if round % 2 == 0 { &b } else { &a };
        let next = alone(&name);
        queue(backend, &next).await?;
        // The wait begins before, during or after the release of the lock.
        let waiting = cx.within("the waiter learns of its grant", backend.granted(&next));
        let releasing = async {
            for _ in 0..round % 4 {
                tokio::task::yield_now().await;
            }
            release(&a, &held).await
        };
        let (grant, released) = tokio::join!(waiting, releasing);
        released?;
        grant??;
        held = next;
    }
    release(&a, &held).await
}
