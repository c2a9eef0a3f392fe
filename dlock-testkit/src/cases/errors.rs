//! Invalid input and failures: typed errors that name a remedy, and no operation that is half done.

use std::time::Duration;

use dlock_core::{
    AcquireRequest, ConfigIssue, Error, ErrorKind, Exclusion, Fairness, Fencing, Guarantees,
    LockOptions, Locks, Mode, Renew, Renewal, Scope,
};
use tokio::{task::JoinSet, time::timeout};

use crate::{
    Stop, Verdict,
    case::{Cx, now},
    faulty_backend::FaultyBackend,
    stop::{ensure, ensure_eq},
    suite::runtime,
};

pub(crate) async fn leases_out_of_range_are_refused(cx: Cx) -> Verdict {
    let locks = cx.locks().await?;
    let longest = LockOptions::MAX_LEASE;
    for lease in [
        Duration::ZERO,
        Duration::from_nanos(1),
        LockOptions::MIN_LEASE - Duration::from_nanos(1),
        longest + Duration::from_nanos(1),
        Duration::MAX,
    ] {
        let refused = locks.with_options(LockOptions::new().with_lease(lease)).err();
        explains(refused, ErrorKind::Config(ConfigIssue::Lease), "")?;
    }
    let name = cx.name("lock");
    for lease in [LockOptions::MIN_LEASE, longest] {
        let locks = locks.with_options(cx.steady().with_lease(lease))?;
        locks.mutex(&name)?.lock().await?.release().await?;
    }
    Ok(())
}

pub(crate) async fn renewal_for_less_than_the_lease_is_refused(cx: Cx) -> Verdict {
    let locks = cx.locks().await?;
    for limit in [Duration::ZERO, Duration::from_secs(1)] {
        let options = LockOptions::new().with_renew(Renew::For(limit));
        let refused = locks.with_options(options).err();
        explains(refused, ErrorKind::Config(ConfigIssue::Renewal), "Renew::Never")?;
    }
    Ok(())
}

pub(crate) async fn a_wait_of_zero_is_one_attempt(cx: Cx) -> Verdict {
    let (a, b, name) = cx.pair().await?;
    let guard = a.mutex(&name)?.lock_timeout(Duration::ZERO).await?;
    let refused = b.mutex(&name)?.lock_timeout(Duration::ZERO).await.err();
    explains(refused, ErrorKind::Timeout, name.as_str())?;
    let refused = b.rw(&name)?.read().lock_timeout(Duration::ZERO).await.err();
    explains(refused, ErrorKind::Timeout, name.as_str())?;
    cx.waiters(b.backend(), &name, 0).await?;
    guard.release().await?;
    Ok(())
}

pub(crate) async fn an_endless_wait_does_not_overflow(cx: Cx) -> Verdict {
    let (a, b, name) = cx.pair().await?;
    for wait in [Duration::MAX, Duration::from_secs(u64::MAX), Duration::from_secs(1 << 40)] {
        let guard = a.mutex(&name)?.lock_timeout(wait).await?;
        let mutex = b.mutex(&name)?;
        let waiting = cx.within("the waiter gets the lock", mutex.lock_timeout(wait));
        let (next, released) = tokio::join!(waiting, guard.release());
        released?;
        next??.release().await?;
    }
    Ok(())
}

pub(crate) async fn without_a_runtime_it_is_an_error(cx: Cx) -> Verdict {
    let backend = cx.backend().await?;
    let made = std::thread::spawn(move || Locks::new(backend).err()).join();
    let refused = made.map_err(|_| Stop::failed("making locks without a runtime panics"))?;
    explains(refused, ErrorKind::Config(ConfigIssue::Runtime), "tokio")
}

pub(crate) async fn with_its_runtime_gone_it_is_an_error(cx: Cx) -> Verdict {
    let (other, inner) = (runtime()?, cx.clone());
    let making = other.spawn(async move { inner.locks_with(inner.brief()).await });
    let locks = cx.within("the locks are made", making).await???;
    other.shutdown_background();
    let (name, end) = (cx.name("lock"), now().saturating_add(cx.bound()));
    loop {
        // The runtime shuts down in the background.
        let mutex = locks.mutex(&name)?;
        let taken = cx.within("the lock is refused or granted", mutex.try_lock()).await?;
        match taken {
            Err(error) => {
                let runtime = ErrorKind::Config(ConfigIssue::Runtime);
                let known = error.kind() == runtime || error.kind() == ErrorKind::Unavailable;
                ensure!(known, "{error:?}");
                break;
            }
            Ok(guard) => drop(guard),
        }
        ensure!(now() < end, "locks whose runtime has gone are granted and never renewed");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}

pub(crate) async fn waits_end_with_an_error_when_their_runtime_ends(cx: Cx) -> Verdict {
    let (keeper, names) = (cx.locks().await?, [cx.name("held"), cx.name("own"), cx.name("lost")]);
    let [name, own, lost] = &names;
    let (other, inner) = (runtime()?, cx.clone());
    let making = other.spawn(async move { inner.locks_with(inner.brief()).await });
    let locks = cx.within("the locks are made", making).await???;
    let held = keeper.mutex(name)?.lock().await?;
    let mut guards = Vec::new();
    for name in [own, lost] {
        guards.push(locks.mutex(name)?.lock().await?);
    }
    let mut waits = JoinSet::new();
    for locks in [locks.clone(), locks.clone(), locks.without_handoff()] {
        let mutex = locks.mutex(name)?;
        waits.spawn(async move { mutex.lock().await });
    }
    // Above, two tasks share one claim.
    if cx.guarantees().fairness > Fairness::None {
        cx.waiters(keeper.backend(), name, 2).await?;
    }
    other.shutdown_background();
    while let Some(ended) = cx.within("a wait ends", waits.join_next()).await? {
        let ended = ended.map_err(|_| Stop::failed("a wait panics when its runtime ends"))?;
        let kind = ended.err().map(|error| error.kind());
        let runtime = ErrorKind::Config(ConfigIssue::Runtime);
        ensure!(kind == Some(runtime) || kind == Some(ErrorKind::Unavailable), "{kind:?}");
    }
    // The other calls may have any answer, or none.
    let backend = locks.backend().clone();
    let request = AcquireRequest::new(name.clone(), Mode::Exclusive, cx.lease());
    let renewal = Renewal::new(request.as_claim(), Mode::Exclusive, cx.lease());
    let mut calls = JoinSet::new();
    let [calling, waiting, renewing, looking] = [(); 4].map(|()| backend.clone());
    let (asked, awaited, seen) = (request.clone(), request.clone(), name.clone());
    calls.spawn(async move { drop(calling.acquire(&asked).await) });
    calls.spawn(async move { drop(waiting.granted(&awaited).await) });
    calls.spawn(async move { drop(renewing.renew(&[renewal]).await) });
    calls.spawn(async move { drop(looking.inspect(&seen).await) });
    calls.spawn(async move { drop(backend.release(&request.as_claim()).await) });
    for (guard, released) in guards.into_iter().zip([true, false]) {
        calls.spawn(async move {
            if released {
                drop(guard.release().await);
            } else {
                guard.lost().await;
            }
        });
    }
    // A wait in the store itself may have no end: the core watches the runtime.
    let ended = async {
        while let Some(call) = calls.join_next().await {
            call.map_err(|_| Stop::failed("a call panics when its runtime has ended"))?;
        }
        Ok::<(), Stop>(())
    };
    if let Ok(ended) = timeout(cx.lease() * 2, ended).await {
        ended?;
    }
    held.release().await?;
    Ok(())
}

pub(crate) async fn every_request_is_refused_after_a_shutdown(cx: Cx) -> Verdict {
    let (a, b, name) = cx.pair().await?;
    drop(a.mutex(&name)?.lock().await?);
    a.shutdown(cx.bound()).await?;
    // No operation is pending any more.
    let free = b.inspect(&name).await?.is_free();
    ensure!(free, "a shutdown returns before the last release has reached the store");
    let shut = ErrorKind::Config(ConfigIssue::ShutDown);
    for locks in [&a, &a.clone(), &a.without_handoff()] {
        explains(locks.mutex(&name)?.lock().await.err(), shut, "")?;
        explains(locks.mutex(&name)?.try_lock().await.err(), shut, "")?;
        explains(locks.rw(&name)?.read().lock().await.err(), shut, "")?;
        explains(locks.multi([&name, &cx.name("b")])?.lock().await.err(), shut, "")?;
    }
    b.mutex(&name)?.lock().await?.release().await?;
    Ok(())
}

pub(crate) async fn a_shutdown_waits_for_guards(cx: Cx) -> Verdict {
    let (a, b, name) = cx.pair().await?;
    let guard = a.mutex(&name)?.lock().await?;
    let early = a.shutdown(Duration::from_millis(30)).await.err();
    explains(early, ErrorKind::Timeout, "1")?;
    guard.check()?;
    let (released, ended) = tokio::join!(guard.release(), a.shutdown(cx.bound()));
    released?;
    ended?;
    b.mutex(&name)?.lock().await?.release().await?;
    Ok(())
}

pub(crate) async fn an_error_names_lock_store_and_remedy(cx: Cx) -> Verdict {
    let (a, b, name) = cx.pair().await?;
    let guard = a.mutex(&name)?.lock().await?;
    let error = b.mutex(&name)?.lock_timeout(Duration::from_millis(5)).await.err();
    let error = error.ok_or("a held lock is granted")?;
    ensure_eq!(error.lock(), Some(&name), "the lock of {error}");
    ensure!(error.operation().is_some(), "no operation in {error}");
    let text = error.to_string();
    ensure!(text.contains(name.as_str()) && !text.ends_with('.'), "{text}");
    guard.release().await?;
    Ok(())
}

pub(crate) async fn a_store_out_of_reach_is_unavailable(cx: Cx) -> Verdict {
    let meddled = FaultyBackend::new(cx.backend().await?);
    let locks = cx.locks_over(meddled.clone(), cx.brief())?;
    let name = cx.name("lock");
    meddled.unreachable(true);
    let tried = locks.mutex(&name)?.try_lock().await;
    explains(tried.err(), ErrorKind::Unavailable, name.as_str())?;
    let mutex = locks.mutex(&name)?;
    let waited = cx.within("the wait ends after one lease", mutex.lock()).await?;
    explains(waited.err(), ErrorKind::Unavailable, locks.backend().store())?;
    meddled.unreachable(false);
    locks.mutex(&name)?.lock().await?.release().await?;
    Ok(())
}

pub(crate) async fn a_store_that_comes_back_in_time_is_waited_for(cx: Cx) -> Verdict {
    let meddled = FaultyBackend::new(cx.backend().await?);
    let locks = cx.locks_over(meddled.clone(), cx.steady())?;
    let name = cx.name("lock");
    meddled.unreachable(true);
    let mutex = locks.mutex(&name)?;
    let back = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        meddled.unreachable(false);
    };
    let (guard, ()) = tokio::join!(mutex.lock(), back);
    guard?.release().await?;
    Ok(())
}

pub(crate) async fn a_missing_guarantee_is_refused_when_required(cx: Cx) -> Verdict {
    let (a, b) = (cx.locks().await?, cx.locks().await?);
    ensure_eq!(a.guarantees(), b.guarantees(), "the guarantees of two clients");
    ensure_eq!(a.backend().store(), b.backend().store(), "the store of two clients");
    a.require(&Guarantees::WEAKEST)?;
    a.require(&cx.guarantees())?;
    let most = Guarantees::WEAKEST
        .with_exclusion(Exclusion::Failover)
        .with_fencing(Fencing::Durable)
        .with_scope(Scope::Network);
    let all_given = most.check_given(&cx.guarantees()).is_ok();
    match a.require(&most) {
        Ok(()) => ensure!(all_given, "a guarantee that is not given is accepted"),
        Err(error) => {
            ensure!(!all_given, "{error}");
            explains(Some(error), ErrorKind::Config(ConfigIssue::Guarantee), "needed")?;
        }
    }
    Ok(())
}

/// Checks that the error has this kind, and that its text contains `says` and a remedy.
#[track_caller]
fn explains(error: Option<Error>, kind: ErrorKind, says: &str) -> Verdict {
    let error = error.ok_or_else(|| Stop::failed(format!("no error where {kind:?} is due")))?;
    ensure_eq!(error.kind(), kind, "{error}");
    let text = error.to_string();
    ensure!(text.contains(says), "{text:?} does not say {says:?}");
    // The text must state the problem and then the remedy.
    ensure!(text.contains(": ") || text.contains("; "), "no remedy in {text:?}");
    Ok(())
}
