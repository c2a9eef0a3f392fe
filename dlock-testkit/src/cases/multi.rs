//! A multi-lock holds all of its locks or none.

use std::collections::BTreeMap;

use dlock_core::{Acquired, ConfigIssue, DynBackend, ErrorKind, LockName, Locks, MultiMutex};

use crate::{
    Stop, Verdict,
    case::{Crew, Cx, pass},
    stop::{ensure, ensure_eq, ensure_safe},
    verbs::{alone, leased, release, take, take_away, tried, trying},
};

pub(crate) async fn it_takes_all_and_frees_all(cx: Cx) -> Verdict {
    let (a, b, names) = three(&cx).await?;
    let guard = a.multi(&names)?.lock().await?;
    for name in &names {
        ensure_safe!(b.mutex(name)?.try_lock().await?.is_none(), "{name} is free");
    }
    guard.check()?;
    guard.release().await?;
    for name in &names {
        b.mutex(name)?.try_lock().await?.ok_or("one of several is not freed")?.release().await?;
    }
    Ok(())
}

pub(crate) async fn a_try_takes_none_when_one_is_busy(cx: Cx) -> Verdict {
    let (a, b, names) = three(&cx).await?;
    for busy in &names {
        let held = b.mutex(busy)?.lock().await?;
        ensure!(a.multi(&names)?.try_lock().await?.is_none(), "one of three is held");
        for name in names.iter().filter(|name| *name != busy) {
            let free = b.mutex(name)?.try_lock().await?;
            free.ok_or("a try that failed keeps one")?.release().await?;
        }
        held.release().await?;
    }
    a.multi(&names)?.try_lock().await?.ok_or("all are free")?.release().await?;
    Ok(())
}

pub(crate) async fn it_waits_for_all(cx: Cx) -> Verdict {
    let (a, b, names) = three(&cx).await?;
    let held = [b.mutex(&names[0])?.lock().await?, b.mutex(&names[2])?.lock().await?];
    let (multi, mut crew) = (a.multi(&names)?, Crew::new());
    crew.go(async move {
        let guard = multi.lock().await?;
        guard.check()?;
        guard.release().await?;
        Ok(())
    });
    // The multi-lock may wait for both names at once, or for one after the other.
    let waits = async |name| Ok::<_, crate::Stop>(!b.inspect(name).await?.waiters.is_empty());
    cx.until("it waits", || async { Ok(waits(&names[0]).await? || waits(&names[2]).await?) })
        .await?;
    for guard in held {
        guard.release().await?;
    }
    crew.done(&cx).await
}

pub(crate) async fn opposite_orders_do_not_deadlock(cx: Cx) -> Verdict {
    let (a, b, names) = three(&cx).await?;
    let mut crew = Crew::new();
    for (i, locks) in [&a, &b, &a, &b].into_iter().enumerate() {
        let mut order = names.to_vec();
        order.rotate_left(i % 3);
        if i % 2 == 0 {
            order.reverse();
        }
        let (multi, rounds) = (locks.multi(&order)?, cx.effort(8));
        crew.go(async move {
            for _ in 0..rounds {
                let guard = multi.lock().await?;
                tokio::task::yield_now().await;
                guard.release().await?;
            }
            Ok(())
        });
    }
    // Other tasks use single locks of the same names at the same time.
    for name in &names {
        let (mutex, rounds) = (b.mutex(name)?, cx.effort(8));
        crew.go(async move {
            for _ in 0..rounds {
                mutex.lock().await?.release().await?;
            }
            Ok(())
        });
    }
    crew.done(&cx).await
}

pub(crate) async fn overlapping_sets_do_not_deadlock(cx: Cx) -> Verdict {
    let (a, b, names) = three(&cx).await?;
    let other = cx.locks().await?;
    // One client waits for more names than the other. If one of them enters the queues at once and
    // the other one by one, each gets a name that the other waits for.
    for (few, many) in [(&a, &b), (&b, &a)] {
        for busy in &names {
            let held = other.mutex(busy)?.lock().await?;
            let mut crew = Crew::new();
            for (locks, wanted) in [(many, &names[..]), (few, &names[..2])] {
                if !wanted.contains(busy) {
                    continue;
                }
                let (multi, before) = (locks.multi(wanted)?, waiting(&other, &names).await?);
                crew.go(async move { Ok(multi.lock().await?.release().await.map(|_| ())?) });
                // For any of its names, since it may hold some or find others held.
                cx.until("it waits", || async { Ok(waiting(&other, &names).await? > before) })
                    .await?;
            }
            held.release().await?;
            crew.done(&cx).await?;
        }
    }
    Ok(())
}

pub(crate) async fn repeated_names_are_one(cx: Cx) -> Verdict {
    let (a, b, [one, two, _]) = three(&cx).await?;
    let multi = a.multi([&one, &two, &one, &one])?;
    let mut names = [one.clone(), two];
    names.sort();
    ensure_eq!(multi.names(), names, "the names");
    multi.lock().await?.release().await?;
    b.mutex(&one)?.try_lock().await?.ok_or("a repeated name is not freed")?.release().await?;
    Ok(())
}

pub(crate) async fn it_has_a_token_for_each_name(cx: Cx) -> Verdict {
    let (a, b, names) = three(&cx).await?;
    let mut last = BTreeMap::new();
    for locks in [&a, &b, &a] {
        let guard = locks.multi(&names)?.lock().await?;
        let tokens = guard.tokens();
        ensure_eq!(tokens.len(), 3, "the tokens");
        let largest = tokens.iter().map(|(_, token)| *token).max();
        ensure_eq!(Some(guard.token()), largest, "the token of all");
        for (name, token) in tokens {
            let before = last.insert(name.clone(), token);
            ensure!(before < Some(token), "{name}: {before:?}, then {token:?}");
        }
        guard.release().await?;
        for name in &names {
            let guard = b.mutex(name)?.lock().await?;
            ensure!(last.insert(name.clone(), guard.token()) < Some(guard.token()), "{name}");
            guard.release().await?;
        }
    }
    Ok(())
}

pub(crate) async fn a_wait_that_ends_leaves_none(cx: Cx) -> Verdict {
    let (a, b, names) = three(&cx).await?;
    let held = b.mutex(&names[1])?.lock().await?;
    let wait = std::time::Duration::from_millis(50);
    let error = a.multi(&names)?.lock_timeout(wait).await.err().ok_or("one of three is held")?;
    ensure_eq!(error.kind(), ErrorKind::Timeout, "{error}");
    for name in [&names[0], &names[2]] {
        cx.free(b.backend(), name).await?;
    }
    cx.waiters(b.backend(), &names[1], 0).await?;
    held.release().await?;
    Ok(())
}

pub(crate) async fn a_wait_that_ends_releases_its_locks(cx: Cx) -> Verdict {
    let (a, b, names) = three(&cx).await?;
    let multi = a.multi(&names)?;
    // Another client holds both at the start, and one of them until the end. The order of the store
    // decides which of them the multi-lock waits for first.
    let [one, two] = [b.mutex(&names[1])?.lock().await?, b.mutex(&names[2])?.lock().await?];
    let mut waiting_for_all = Box::pin(multi.lock());
    let part = async {
        cx.until("it waits", || async { Ok(waiting(&b, &names[1..]).await? > 0) }).await?;
        let is_first = waiting(&b, &names[1..2]).await? > 0;
        let (early, first, late, second) = match is_first {
            true => (one, &names[1], two, &names[2]),
            false => (two, &names[2], one, &names[1]),
        };
        early.release().await?;
        let granted = || async { Ok(!b.inspect(first).await?.holders.is_empty()) };
        cx.until("it has one more of the names", granted).await?;
        Ok::<_, crate::Stop>((first, late, second))
    };
    let (first, late, second) = tokio::select! {
        got = &mut waiting_for_all => return Err(crate::Stop::failed(format!("{got:?} of three"))),
        part = part => part?,
    };
    // This gives the multi-lock time to learn of the grant.
    let _ = tokio::time::timeout(std::time::Duration::from_millis(100), &mut waiting_for_all).await;
    drop(waiting_for_all);
    for name in [&names[0], first] {
        cx.free(b.backend(), name).await?;
    }
    cx.waiters(b.backend(), second, 0).await?;
    late.release().await?;
    Ok(())
}

pub(crate) async fn a_name_in_other_use_leaves_none(cx: Cx) -> Verdict {
    let (a, b, names) = three(&cx).await?;
    let held = alone(&names[1]);
    let permit = crate::verbs::ask(&names[1], dlock_core::Mode::permits(1, 2)?);
    take(b.backend(), &permit).await?;
    for result in [a.multi(&names)?.try_lock().await, a.multi(&names)?.lock().await.map(Some)] {
        let error = result.err().ok_or("a semaphore is taken as a mutex")?;
        ensure_eq!(error.kind(), ErrorKind::Config(ConfigIssue::Capacity), "{error}");
        for name in [&names[0], &names[2]] {
            cx.free(b.backend(), name).await?;
        }
    }
    release(b.backend(), &permit).await?;
    take(b.backend(), &held).await?;
    release(b.backend(), &held).await
}

pub(crate) async fn it_is_lost_when_one_is(cx: Cx) -> Verdict {
    let locks = cx.locks_with(cx.renewing()).await?;
    let (_, b, names) = three(&cx).await?;
    let guard = locks.multi(&names)?.lock().await?;
    take_away(b.backend(), &names[1]).await?;
    cx.within("the loss is told", guard.lost()).await?;
    let error = guard.check().err().ok_or("a guard that lost one of three passes")?;
    ensure_eq!(error.kind(), ErrorKind::Lost, "{error}");
    ensure_eq!(guard.release().await?, dlock_core::Released::AlreadyLost, "the release");
    Ok(())
}

pub(crate) async fn it_reaches_over_two_stores(cx: Cx) -> Verdict {
    let (here, name) = (cx.locks().await?, cx.name("here"));
    let (backend, far) = cx.elsewhere().await?;
    let there = cx.locks_over(backend, cx.steady())?;
    // The same name in two stores denotes two locks.
    let both = || MultiMutex::across([here.mutex(&name)?, there.mutex(&far)?, here.mutex(&far)?]);
    let guard = both()?.lock().await?;
    ensure_eq!(guard.tokens().len(), 3, "the tokens");
    ensure_safe!(there.mutex(&far)?.try_lock().await?.is_none(), "the far store's lock is free");
    guard.release().await?;
    let busy = there.mutex(&far)?.lock().await?;
    ensure!(both()?.try_lock().await?.is_none(), "the far store's lock is held");
    for name in [&name, &far] {
        here.mutex(name)?.try_lock().await?.ok_or("a try that failed keeps one")?.release().await?;
    }
    busy.release().await?;
    Ok(())
}

pub(crate) async fn no_names_are_refused(cx: Cx) -> Verdict {
    let locks = cx.locks().await?;
    let error = locks.multi([] as [&str; 0]).err().ok_or("a multi-lock over nothing")?;
    ensure_eq!(error.kind(), ErrorKind::Config(ConfigIssue::Empty), "{error}");
    Ok(())
}

pub(crate) async fn several_acquires_are_answered_in_order(cx: Cx) -> Verdict {
    let backend = cx.backend().await?;
    let names: [_; 3] = of_one_shard(&cx, &backend);
    let held = alone(&names[1]);
    take(&backend, &held).await?;
    let queued = names.each_ref().map(alone);
    let Some(answer) = backend.acquire_all(&queued) else { return release(&backend, &held).await };
    let kind = |answer: &Acquired| match answer {
        Acquired::Granted(_) => "granted",
        Acquired::Queued => "queued",
        _ => "busy",
    };
    let answers: Vec<_> = answer.await?.iter().map(kind).collect();
    ensure_eq!(answers, ["granted", "queued", "granted"], "the answers");
    for request in &queued {
        release(&backend, request).await?;
    }
    let tried = names.each_ref().map(|name| trying(alone(name)));
    let Some(answer) = backend.acquire_all(&tried) else { return release(&backend, &held).await };
    for (answer, request) in answer.await?.iter().zip(&tried) {
        match kind(answer) {
            "granted" => release(&backend, request).await?,
            "queued" => ensure!(false, "a claim that does not wait was queued"),
            _ => {}
        }
    }
    release(&backend, &held).await
}

/// The mutexes of a multi-lock have options of their own, and so their claims have their own leases.
pub(crate) async fn each_of_several_acquires_has_its_own_lease(cx: Cx) -> Verdict {
    let (a, b) = (cx.backend().await?, cx.backend().await?);
    let in_order = async |is_reversed: bool| {
        let [ending, held]: [_; 2] = of_one_shard(&cx, &a);
        let (ending, held) = (leased(alone(&ending), cx.renewed()), alone(&held));
        let mut both = [&ending, &held].map(|request| trying(request.clone()));
        if is_reversed {
            both.reverse();
        }
        let Some(answer) = a.acquire_all(&both) else {
            return Err(Stop::ruled_out("this store acquires several locks one by one"));
        };
        let answers = answer.await?;
        let is_granted = |answer: &Acquired| matches!(answer, Acquired::Granted(_));
        ensure!(answers.iter().all(is_granted), "the answers: {answers:?}");
        cx.free(&b, &ending.name).await?;
        // If both ended, the other one would end within this time.
        pass(cx.renewed()).await;
        let busy = tried(&b, &alone(&held.name)).await?.is_none();
        ensure_safe!(busy, "the lease of {held:?} has ended with that of {ending:?}");
        release(&a, &held).await
    };
    tokio::try_join!(in_order(false), in_order(true))?;
    Ok(())
}

/// Returns names of one shard. The core sends no others together.
pub(crate) fn of_one_shard<const N: usize>(cx: &Cx, backend: &DynBackend) -> [LockName; N] {
    let mut shards = BTreeMap::<u32, Vec<LockName>>::new();
    loop {
        let name = cx.name("one");
        let shard = shards.entry(backend.shard(&name)).or_default();
        shard.push(name);
        if let Ok(names) = <&[LockName; N]>::try_from(&**shard) {
            return names.clone();
        }
    }
}

/// Returns the number of claims that wait for these names.
async fn waiting(locks: &Locks, names: &[LockName]) -> Result<usize, crate::Stop> {
    let mut count = 0;
    for name in names {
        count += locks.inspect(name).await?.waiters.len();
    }
    Ok(count)
}

async fn three(cx: &Cx) -> Result<(Locks, Locks, [LockName; 3]), crate::Stop> {
    Ok((cx.locks().await?, cx.locks().await?, [cx.name("c"), cx.name("a"), cx.name("b")]))
}
