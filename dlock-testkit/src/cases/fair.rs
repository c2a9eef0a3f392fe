//! First come, first served, across all clients.

use std::sync::Arc;

use dlock_core::{ErrorKind, Locks, Mode};

use crate::{
    Verdict,
    case::{Crew, Cx},
    history::{self, Recorder},
    polls::drop_after,
    stop::{ensure, ensure_eq, ensure_safe},
    verbs::{alone, leased, queue, release, release_in_vain, take},
};

pub(crate) async fn grants_follow_the_order_of_arrival(cx: Cx) -> Verdict {
    let clients = [cx.locks().await?, cx.locks().await?, cx.locks().await?];
    let (name, recorder) = (cx.name("lock"), Recorder::new());
    let gate = clients[0].fair(&name)?.lock().await?;
    let mut crew = Crew::new();
    // Tasks of one client are adjacent in the queue in some places, and separated in others.
    for (i, client) in [0, 0, 1, 2, 1, 0, 2, 2, 1, 0].into_iter().enumerate() {
        let (fair, hold) = (clients[client].fair(&name)?, recorder.announce());
        let writing = recorder.clone();
        crew.go(async move {
            let taking = async { fair.lock().await.map(Some) };
            let held = writing.acquire_as(hold, i, Mode::Exclusive, taking).await?;
            writing.release(held.ok_or("a lock that waits was busy")?).await?;
            Ok(())
        });
        cx.waiters(clients[0].backend(), &name, i + 1).await?;
        recorder.arrived(hold, i);
    }
    gate.release().await?;
    crew.done(&cx).await?;
    let history = recorder.finish();
    history::at_least(&history, 10)?;
    history::exclusion::check(&history)?;
    Ok(history::fifo::check(&history)?)
}

pub(crate) async fn a_try_does_not_overtake_a_waiter(cx: Cx) -> Verdict {
    let (a, b, name) = cx.pair().await?;
    let held = a.rw(&name)?.read().lock().await?;
    let (fair, mut crew) = (b.fair(&name)?, Crew::new());
    crew.go(async move { Ok(fair.lock().await?.release().await.map(|_| ())?) });
    cx.waiters(a.backend(), &name, 1).await?;
    for locks in [&a, &b] {
        let overtakes = locks.rw(&name)?.read().try_lock().await?;
        ensure!(overtakes.is_none(), "a try gets in before one that waits");
    }
    held.release().await?;
    crew.done(&cx).await
}

pub(crate) async fn a_cancelled_claim_is_skipped(cx: Cx) -> Verdict {
    let (a, b, name) = cx.pair().await?;
    let gate = a.fair(&name)?.lock().await?;
    let (first, second) = (b.fair(&name)?, b.fair(&name)?);
    let mut cancelled = tokio::task::JoinSet::new();
    cancelled.spawn(async move { drop(first.lock().await) });
    cx.waiters(a.backend(), &name, 1).await?;
    let mut crew = Crew::new();
    crew.go(async move { Ok(second.lock().await?.release().await.map(|_| ())?) });
    cx.waiters(a.backend(), &name, 2).await?;
    cancelled.shutdown().await;
    cx.waiters(a.backend(), &name, 1).await?;
    gate.release().await?;
    crew.done(&cx).await
}

pub(crate) async fn a_dead_waiter_is_skipped_after_its_lease(cx: Cx) -> Verdict {
    let (a, locks, name) = (cx.backend().await?, cx.locks().await?, cx.name("lock"));
    let (gate, dead) = (alone(&name), leased(alone(&name), cx.lease()));
    take(&a, &gate).await?;
    queue(&a, &dead).await?;
    let (fair, mut crew) = (locks.fair(&name)?, Crew::new());
    crew.go(async move { Ok(fair.lock().await?.release().await.map(|_| ())?) });
    // The release comes at once, so that the dead claim may be granted first. Then its lease
    // expires while it holds the lock.
    release(&a, &gate).await?;
    crew.done(&cx).await?;
    release_in_vain(&a, &dead).await
}

pub(crate) async fn waiting_again_keeps_the_position(cx: Cx) -> Verdict {
    let (a, b, name) = (cx.backend().await?, cx.backend().await?, cx.name("lock"));
    let [gate, first, second] = [alone(&name), alone(&name), alone(&name)];
    take(&a, &gate).await?;
    queue(&a, &first).await?;
    queue(&b, &second).await?;
    for polls in 0..4 {
        drop(drop_after(polls, a.granted(&first)).await);
    }
    let waiting: Vec<_> =
        b.inspect(&name).await?.waiters.iter().map(|waiter| waiter.claim).collect();
    ensure_eq!(waiting, [first.claim, second.claim], "the queue");
    release(&a, &gate).await?;
    let one = cx.within("the first is granted", a.granted(&first)).await??;
    release(&a, &first).await?;
    let two = cx.within("the second is granted", b.granted(&second)).await??;
    ensure_safe!(two.token > one.token, "{two:?} after {one:?}");
    release(&b, &second).await
}

pub(crate) async fn a_fair_lock_is_never_handed_off_in_passing(cx: Cx) -> Verdict {
    let (a, b, name) = cx.pair().await?;
    let order = Arc::new(parking_lot::Mutex::new(Vec::new()));
    let gate = a.fair(&name)?.lock().await?;
    let mut crew = Crew::new();
    let mut enter = |locks: &Locks, who: &'static str| {
        let (fair, order) = (locks.fair(&name)?, order.clone());
        crew.go(async move {
            let guard = fair.lock().await?;
            order.lock().push(who);
            guard.release().await?;
            Ok(())
        });
        Verdict::Ok(())
    };
    for (i, (locks, who)) in [(&a, "a"), (&b, "b"), (&a, "a"), (&b, "b")].into_iter().enumerate() {
        enter(locks, who)?;
        cx.waiters(a.backend(), &name, i + 1).await?;
    }
    gate.release().await?;
    crew.done(&cx).await?;
    ensure_eq!(*order.lock(), ["a", "b", "a", "b"], "the order of grants");
    Ok(())
}

pub(crate) async fn without_an_order_it_is_refused(cx: Cx) -> Verdict {
    let (a, _, name) = cx.pair().await?;
    let error = a.fair(&name).err().ok_or("a fair lock on a store without an order")?;
    ensure_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    Ok(())
}
