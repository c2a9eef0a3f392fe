//! Lost locks: the holder is notified in time, and the next holder is not affected.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use dlock_core::{ErrorKind, GuardState, LockName, Locks, Released, Renew};

use crate::{
    Stop, Verdict,
    case::{Crew, Cx, pass},
    faulty_backend::{FaultyBackend, Renewals},
    stop::{ensure, ensure_eq, ensure_safe},
    suite::runtime,
    verbs::take_away,
};

pub(crate) async fn a_revocation_is_reported_to_the_holder(cx: Cx) -> Verdict {
    let locks = cx.locks_with(cx.renewing()).await?;
    let (other, name) = (cx.locks().await?, cx.name("lock"));
    let guard = locks.mutex(&name)?.lock().await?;
    take_away(other.backend(), &name).await?;
    cx.within("the loss is told", guard.lost()).await?;
    let error = guard.check().err().ok_or("a lost guard passes the check")?;
    ensure_eq!(error.kind(), ErrorKind::Lost, "{error}");
    ensure_eq!(error.lock(), Some(&name), "the lock that the error names");
    ensure_eq!(guard.state(), GuardState::Lost, "the state");
    ensure!(guard.remaining().is_zero(), "{:?} remain of a lost lock", guard.remaining());
    ensure_eq!(guard.release().await?, Released::AlreadyLost, "the release");
    Ok(())
}

pub(crate) async fn a_release_says_that_the_lock_was_lost(cx: Cx) -> Verdict {
    let (a, b, name) = cx.pair().await?;
    for locks in [&a, &a.without_handoff()] {
        let guard = locks.mutex(&name)?.lock().await?;
        take_away(b.backend(), &name).await?;
        ensure_eq!(guard.release().await?, Released::AlreadyLost, "the release");
    }
    Ok(())
}

pub(crate) async fn a_loss_is_reported_while_renewals_hang(cx: Cx) -> Verdict {
    reported_before_the_next_grant(&cx, Renewals::Hang).await
}

pub(crate) async fn a_loss_is_reported_while_renewals_fail(cx: Cx) -> Verdict {
    reported_before_the_next_grant(&cx, Renewals::Fail(usize::MAX)).await
}

/// Checks that the holder knows of its loss when the next holder is granted.
async fn reported_before_the_next_grant(cx: &Cx, renewals: Renewals) -> Verdict {
    let meddled = FaultyBackend::new(cx.backend().await?);
    let locks = cx.locks_over(meddled.clone(), cx.brief())?;
    let (other, name) = (cx.locks().await?, cx.name("lock"));
    let guard = locks.mutex(&name)?.lock().await?;
    meddled.renewals(renewals);
    let next = other.mutex(&name)?.lock().await?;
    let error =
        guard.check().err().ok_or_else(|| Stop::violation("two holders believe in one lock"))?;
    ensure_eq!(error.kind(), ErrorKind::Lost, "{error}");
    cx.within("the loss is told", guard.lost()).await?;
    drop(guard);
    next.check()?;
    next.release().await?;
    Ok(())
}

pub(crate) async fn a_renewal_that_fails_is_tried_again(cx: Cx) -> Verdict {
    // On a busy machine the next attempt may come too late for a short lease.
    for times in [1, 5] {
        let meddled = FaultyBackend::new(cx.backend().await?);
        let lease = cx.renewed() * times;
        let locks = cx.locks_over(meddled.clone(), cx.steady().with_lease(lease))?;
        let (other, name) = (cx.locks().await?, cx.name("lock"));
        let guard = locks.mutex(&name)?.lock().await?;
        meddled.renewals(Renewals::Fail(1));
        pass(lease * 3 / 2).await;
        if guard.check().is_err() && times == 1 {
            continue;
        }
        guard.check()?;
        ensure!(other.mutex(&name)?.try_lock().await?.is_none(), "a held lock is free");
        ensure_eq!(guard.release().await?, Released::Released, "the release");
        break;
    }
    Ok(())
}

pub(crate) async fn work_is_dropped_when_the_lock_is_lost(cx: Cx) -> Verdict {
    let locks = cx.locks_with(cx.brief().with_renew(Renew::Never)).await?;
    let name = cx.name("lock");
    let guard = locks.mutex(&name)?.lock().await?;
    let dropped = Arc::new(AtomicBool::new(false));
    let flag = SetOnDrop(dropped.clone());
    let work = guard.run(async move {
        let _flag = flag;
        std::future::pending::<()>().await;
    });
    let error = cx.within("the work ends", work).await?.err().ok_or("endless work is done")?;
    ensure_eq!(error.kind(), ErrorKind::Lost, "{error}");
    ensure!(dropped.load(Ordering::Relaxed), "the work was not dropped");
    let after = guard.run(async {}).await;
    ensure!(after.is_err(), "work begins under a lost lock");
    Ok(())
}

pub(crate) async fn work_under_a_held_lock_is_done(cx: Cx) -> Verdict {
    let (a, _, name) = cx.pair().await?;
    let guard = a.mutex(&name)?.lock().await?;
    ensure_eq!(guard.run(async { 7 }).await?, 7, "the result");
    ensure_eq!(guard.state(), GuardState::Held, "the state");
    ensure_eq!(guard.release().await?, Released::Released, "the release");
    Ok(())
}

pub(crate) async fn a_lost_guard_does_not_affect_the_next_holder(cx: Cx) -> Verdict {
    let locks = cx.locks_with(cx.brief().with_renew(Renew::Never)).await?;
    let (other, name) = (cx.locks().await?, cx.name("lock"));
    for by_drop in [true, false] {
        let lost = locks.mutex(&name)?.lock().await?;
        let next = other.mutex(&name)?.lock().await?;
        if by_drop {
            drop(lost);
            // A dropped guard is released in the background.
            locks.mutex(cx.name("later"))?.lock().await?.release().await?;
        } else {
            ensure_eq!(lost.release().await?, Released::AlreadyLost, "the release");
        }
        let holders = other.inspect(&name).await?.holders;
        ensure_eq!(holders.first().and_then(|h| h.token), Some(next.token()), "the holder");
        next.check()?;
        ensure_eq!(next.release().await?, Released::Released, "the release of the next");
    }
    Ok(())
}

pub(crate) async fn a_lost_lock_does_not_hold_its_neighbours_up(cx: Cx) -> Verdict {
    let locks = cx.locks_with(cx.renewing()).await?;
    let (other, name) = (cx.locks().await?, cx.name("lock"));
    let guard = locks.mutex(&name)?.lock().await?;
    let (mutex, mut crew) = (locks.mutex(&name)?, Crew::new());
    crew.go(async move { Ok(mutex.lock().await?.release().await.map(|_| ())?) });
    take_away(other.backend(), &name).await?;
    // The guard still exists; another task of the same client gets the lock from the store.
    crew.done(&cx).await?;
    ensure_safe!(guard.check().is_err(), "two holders believe in one lock");
    Ok(())
}

pub(crate) async fn a_guard_may_be_dropped_outside_of_a_runtime(cx: Cx) -> Verdict {
    let (a, b, name) = cx.pair().await?;
    let guard = a.mutex(&name)?.lock().await?;
    let dropped = std::thread::spawn(move || drop(guard)).join();
    ensure!(dropped.is_ok(), "dropping a guard on a thread without a runtime panics");
    b.mutex(&name)?.lock().await?.release().await?;
    Ok(())
}

pub(crate) async fn a_guard_works_in_a_runtime_of_one_thread(cx: Cx) -> Verdict {
    let (inner, name) = (cx.clone(), cx.name("lock"));
    let lock = name.clone();
    let single = std::thread::spawn(move || -> Verdict {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let locks = inner.locks().await?;
            locks.mutex(&lock)?.lock().await?.release().await?;
            drop(locks.mutex(&lock)?.lock().await?);
            inner.free(locks.backend(), &lock).await
        })
    });
    let ended = cx.within("the thread ends", tokio::task::spawn_blocking(move || single.join()));
    match ended.await?? {
        Ok(verdict) => verdict,
        Err(_) => Err(crate::Stop::failed("a runtime of one thread panics")),
    }?;
    free_again(&cx.locks().await?, &name).await
}

pub(crate) async fn a_guard_may_outlive_its_runtime(cx: Cx) -> Verdict {
    let (inner, name, other) = (cx.clone(), cx.name("lock"), runtime()?);
    let lock = name.clone();
    let taking = other.spawn(async move {
        let locks = inner.locks_with(inner.brief()).await?;
        let guard = locks.mutex(&lock)?.lock().await?;
        Ok::<_, crate::Stop>((locks, guard))
    });
    let (locks, guard) = cx.within("the lock is granted", taking).await???;
    other.shutdown_background();
    // The lock is no longer renewed.
    pass(cx.lease() * 2).await;
    ensure!(guard.check().is_err(), "a lock that nobody renews is believed in");
    drop(guard);
    drop(locks);
    free_again(&cx.locks().await?, &name).await
}

pub(crate) async fn a_panic_frees_the_lock(cx: Cx) -> Verdict {
    let (a, b, name) = cx.pair().await?;
    let (mutex, mut task) = (a.mutex(&name)?, tokio::task::JoinSet::new());
    task.spawn(async move {
        let _guard = mutex.lock().await;
        // `resume_unwind` panics without printing a message.
        std::panic::resume_unwind(Box::new("on purpose"));
    });
    while task.join_next().await.is_some() {}
    free_again(&b, &name).await
}

async fn free_again(locks: &Locks, name: &LockName) -> Verdict {
    locks.mutex(name)?.lock().await?.release().await?;
    Ok(())
}

struct SetOnDrop(Arc<AtomicBool>);

impl Drop for SetOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
