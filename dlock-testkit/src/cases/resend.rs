//! A verb whose answer got lost is retried, and takes effect once.

use dlock_core::{Acquired, ErrorKind, Mode, Renewed};

use crate::{
    Verdict,
    case::{Cx, pass},
    faulty_backend::FaultyBackend,
    stop::{ensure, ensure_eq},
    verbs::{alone, ask, leased, queue, release, release_in_vain, renew, take, tried},
};

pub(crate) async fn an_acquire_sent_again_is_one_hold(cx: Cx) -> Verdict {
    let (a, name) = (cx.backend().await?, cx.name("lock"));
    let b = cx.twin(&a).await?;
    let request = alone(&name).with_tokens(3);
    let first = take(&a, &request).await?;
    for backend in [&a, &b] {
        let again = take(backend, &request).await?;
        ensure_eq!((again.token, again.tokens), (first.token, first.tokens), "the grant");
    }
    ensure_eq!(a.inspect(&name).await?.holders.len(), 1, "the holders");
    release(&a, &request).await?;
    ensure!(a.inspect(&name).await?.is_free(), "one release does not end what was sent thrice");
    Ok(())
}

pub(crate) async fn an_acquire_sent_twice_at_once_is_one_hold(cx: Cx) -> Verdict {
    let (a, name) = (cx.backend().await?, cx.name("lock"));
    let b = cx.twin(&a).await?;
    for _ in 0..cx.effort(10) {
        let request = alone(&name);
        let (one, two) = tokio::join!(take(&a, &request), take(&b, &request));
        ensure_eq!(one?.token, two?.token, "the token");
        release(&b, &request).await?;
        release_in_vain(&a, &request).await?;
    }
    Ok(())
}

pub(crate) async fn a_waiter_that_retries_keeps_its_position(cx: Cx) -> Verdict {
    let (backend, name) = (cx.backend().await?, cx.name("lock"));
    let [holder, first, second] = [alone(&name), alone(&name), alone(&name)];
    take(&backend, &holder).await?;
    queue(&backend, &first).await?;
    queue(&backend, &second).await?;
    queue(&backend, &first).await?;
    let waiting: Vec<_> =
        backend.inspect(&name).await?.waiters.iter().map(|waiter| waiter.claim).collect();
    ensure_eq!(waiting, [first.claim, second.claim], "the queue");
    release(&backend, &holder).await?;
    take(&backend, &first).await?;
    release(&backend, &first).await?;
    take(&backend, &second).await?;
    release(&backend, &second).await
}

pub(crate) async fn an_acquire_sent_again_renews_the_position(cx: Cx) -> Verdict {
    let (backend, name) = (cx.backend().await?, cx.name("lock"));
    let (holder, waiter) = (alone(&name), leased(alone(&name), cx.renewed()));
    take(&backend, &holder).await?;
    queue(&backend, &waiter).await?;
    let longer = leased(waiter.clone(), cx.renewed() * 4);
    queue(&backend, &longer).await?;
    pass(cx.renewed() * 3 / 2).await;
    ensure_eq!(backend.inspect(&name).await?.waiters.len(), 1, "the waiters");
    release(&backend, &holder).await?;
    release(&backend, &waiter).await
}

pub(crate) async fn resent_permits_are_counted_once(cx: Cx) -> Verdict {
    let (backend, name) = (cx.backend().await?, cx.name("permits"));
    let two = ask(&name, Mode::permits(2, 3)?);
    let one = ask(&name, Mode::permits(1, 3)?);
    take(&backend, &two).await?;
    take(&backend, &two).await?;
    ensure!(tried(&backend, &one).await?.is_some(), "two permits sent twice count as four");
    release(&backend, &two).await?;
    let three = ask(&name, Mode::permits(2, 3)?);
    ensure!(tried(&backend, &three).await?.is_some(), "released permits are still counted");
    release(&backend, &three).await?;
    release(&backend, &one).await
}

pub(crate) async fn a_release_sent_again_finds_nothing(cx: Cx) -> Verdict {
    let (backend, name) = (cx.backend().await?, cx.name("lock"));
    let [first, second] = [alone(&name), alone(&name)];
    take(&backend, &first).await?;
    release(&backend, &first).await?;
    release_in_vain(&backend, &first).await?;
    take(&backend, &second).await?;
    release_in_vain(&backend, &first).await?;
    ensure_eq!(
        backend.inspect(&name).await?.holders.first().map(|holder| holder.claim),
        Some(second.claim),
        "the holder after a release by one who is not"
    );
    ensure_eq!(renew(&backend, &second, second.lease).await?, Renewed::Kept, "the renewal");
    release(&backend, &second).await
}

pub(crate) async fn a_release_of_an_unknown_claim_changes_nothing(cx: Cx) -> Verdict {
    let (a, b, name) = (cx.backend().await?, cx.backend().await?, cx.name("lock"));
    let [holder, waiter, stranger] = [alone(&name), alone(&name), alone(&name)];
    take(&a, &holder).await?;
    queue(&a, &waiter).await?;
    release_in_vain(&b, &stranger).await?;
    let state = a.inspect(&name).await?;
    ensure_eq!((state.holders.len(), state.waiters.len()), (1, 1), "holders and waiters");
    release(&a, &waiter).await?;
    release(&a, &holder).await
}

pub(crate) async fn a_lost_answer_to_a_lock_leaves_one_hold(cx: Cx) -> Verdict {
    let (other, name) = (cx.locks().await?, cx.name("lock"));
    let meddled = FaultyBackend::new(cx.backend().await?);
    let locks = cx.locks_over(meddled.clone(), cx.steady())?;
    for lost in 1..3 {
        meddled.lose_acquires(lost);
        let guard = locks.fair(&name)?.lock().await?;
        let holders = other.inspect(&name).await?.holders.len();
        ensure_eq!(holders, 1, "the holders");
        guard.release().await?;
        cx.free(other.backend(), &name).await?;
    }
    Ok(())
}

pub(crate) async fn a_lost_answer_to_a_try_leaves_nothing(cx: Cx) -> Verdict {
    let (other, name) = (cx.locks().await?, cx.name("lock"));
    let meddled = FaultyBackend::new(cx.backend().await?);
    let locks = cx.locks_over(meddled.clone(), cx.steady())?;
    meddled.lose_acquires(1);
    match locks.mutex(&name)?.try_lock().await {
        Ok(Some(guard)) => drop(guard),
        Ok(None) => ensure!(false, "a free lock is said to be busy: unknown is not no"),
        Err(error) => ensure_eq!(error.kind(), ErrorKind::Unavailable, "{error}"),
    }
    other.mutex(&name)?.lock().await?.release().await?;
    Ok(())
}

pub(crate) async fn a_lost_answer_to_a_release_frees_the_lock(cx: Cx) -> Verdict {
    let (other, name) = (cx.locks().await?, cx.name("lock"));
    let meddled = FaultyBackend::new(cx.backend().await?);
    let locks = cx.locks_over(meddled.clone(), cx.steady())?;
    for locks in [&locks, &locks.without_handoff()] {
        meddled.lose_releases(1);
        let released = locks.mutex(&name)?.lock().await?.release().await?;
        ensure_eq!(released, dlock_core::Released::Released, "the release");
        cx.free(other.backend(), &name).await?;
    }
    meddled.lose_releases(1);
    drop(locks.mutex(&name)?.lock().await?);
    other.mutex(&name)?.lock().await?.release().await?;
    Ok(())
}

pub(crate) async fn an_acquire_of_several_sent_again_is_one_hold_each(cx: Cx) -> Verdict {
    let (other, names) = (cx.backend().await?, [cx.name("a"), cx.name("b")]);
    let requests = names.each_ref().map(alone);
    // The client repeats the same requests, as it does after a lost answer.
    for _ in 0..2 {
        let Some(answer) = other.acquire_all(&requests) else { return Ok(()) };
        let answers = answer.await?;
        let all = answers.iter().all(|answer| matches!(answer, Acquired::Granted(_)));
        ensure!(all && answers.len() == 2, "two free locks: {answers:?}");
    }
    for request in &requests {
        release(&other, request).await?;
    }
    Ok(())
}
