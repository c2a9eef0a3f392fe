//! One holder at a time.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use dlock_core::{ErrorKind, LockExt, LockName, Locks, Mode};
use tokio::sync::Barrier;

use crate::{
    Verdict,
    case::{Crew, Cx},
    history::{self, Recorder},
    stop::{ensure, ensure_eq, ensure_safe},
};

pub(crate) async fn clients_never_hold_together(cx: Cx) -> Verdict {
    let clients = [cx.locks().await?, cx.locks().await?, cx.locks().await?];
    contend(&cx, &clients, 3, 8).await
}

pub(crate) async fn tasks_of_one_client_never_hold_together(cx: Cx) -> Verdict {
    contend(&cx, &[cx.locks().await?], 12, 12).await
}

pub(crate) async fn tasks_without_handoff_never_hold_together(cx: Cx) -> Verdict {
    let clients = [cx.locks().await?.without_handoff(), cx.locks().await?.without_handoff()];
    contend(&cx, &clients, 4, 8).await
}

/// Runs tasks that increment a counter which only the lock protects.
async fn contend(cx: &Cx, clients: &[Locks], tasks: u32, rounds: u32) -> Verdict {
    let (name, recorder) = (cx.name("counter"), Recorder::new());
    let (counter, rounds) = (Arc::new(AtomicU32::new(0)), cx.effort(rounds));
    // On a slow machine, a task would otherwise be done before the next one begins.
    let begins = Arc::new(Barrier::new(clients.len() * usize::try_from(tasks)?));
    let mut crew = Crew::new();
    let mut actor = 0;
    for locks in clients {
        for _ in 0..tasks {
            actor += 1;
            let (mutex, counter) = (locks.mutex(&name)?, counter.clone());
            let (recorder, begins) = (recorder.clone(), begins.clone());
            crew.go(async move {
                begins.wait().await;
                for _ in 0..rounds {
                    let taking = async { mutex.lock().await.map(Some) };
                    let held = recorder.acquire(actor, Mode::Exclusive, taking).await?;
                    let seen = counter.load(Ordering::Relaxed);
                    tokio::task::yield_now().await;
                    counter.store(seen + 1, Ordering::Relaxed);
                    recorder.release(held.ok_or("a lock that waits was busy")?).await?;
                }
                Ok(())
            });
        }
    }
    crew.done(cx).await?;
    let history = recorder.finish();
    let all = rounds * u32::try_from(actor)?;
    history::at_least(&history, usize::try_from(all)?)?;
    history::exclusion::check(&history)?;
    history::tokens::check(&history)?;
    history::tokens::check_holders(&history)?;
    history::wake_up::check(&history, cx.bound())?;
    ensure_eq!(counter.load(Ordering::Relaxed), all, "the counter");
    Ok(())
}

pub(crate) async fn a_try_takes_a_free_lock(cx: Cx) -> Verdict {
    let (a, _, name) = cx.pair().await?;
    let guard = a.mutex(&name)?.try_lock().await?.ok_or("a free lock is busy")?;
    guard.check()?;
    ensure_eq!(guard.name(), &name, "the guard's name");
    guard.release().await?;
    Ok(())
}

pub(crate) async fn a_try_on_a_held_lock_is_none_and_no_error(cx: Cx) -> Verdict {
    let (a, b, name) = cx.pair().await?;
    let guard = a.mutex(&name)?.lock().await?;
    ensure_safe!(b.mutex(&name)?.try_lock().await?.is_none(), "another client takes a held lock");
    ensure_safe!(a.mutex(&name)?.try_lock().await?.is_none(), "a mutex is entered twice");
    guard.check()?;
    guard.release().await?;
    Ok(())
}

pub(crate) async fn a_released_lock_is_free_for_others(cx: Cx) -> Verdict {
    let (a, b, name) = cx.pair().await?;
    for round in 0..5 {
        for locks in [&a, &b] {
            let guard = locks.mutex(&name)?.try_lock().await?;
            let guard = guard.ok_or(format!("round {round}: a released lock is not free"))?;
            guard.release().await?;
        }
    }
    Ok(())
}

pub(crate) async fn a_dropped_guard_frees_the_lock(cx: Cx) -> Verdict {
    let (a, b, name) = cx.pair().await?;
    drop(a.mutex(&name)?.lock().await?);
    b.mutex(&name)?.lock().await?.release().await?;
    Ok(())
}

pub(crate) async fn a_waiter_gets_the_lock_when_it_is_released(cx: Cx) -> Verdict {
    let (a, b, name) = cx.pair().await?;
    for _ in 0..5 {
        let guard = a.mutex(&name)?.lock().await?;
        let (mutex, waiting) = (b.mutex(&name)?, cx.waiters(b.backend(), &name, 1));
        let (next, released) = tokio::join!(mutex.lock(), async {
            waiting.await?;
            guard.release().await?;
            Verdict::Ok(())
        });
        released?;
        next?.release().await?;
    }
    Ok(())
}

pub(crate) async fn names_do_not_hold_each_other_up(cx: Cx) -> Verdict {
    let (a, b) = (cx.locks().await?, cx.locks().await?);
    let names: Vec<LockName> = (0..20).map(|i| cx.name(&i.to_string())).collect();
    let mut guards = Vec::new();
    for (i, name) in names.iter().enumerate() {
        let locks = if i % 2 == 0 { &a } else { &b };
        let guard = locks.mutex(name)?.try_lock().await?;
        guards.push(guard.ok_or("a free lock is busy while others are held")?);
    }
    for guard in guards {
        guard.check()?;
        guard.release().await?;
    }
    Ok(())
}

pub(crate) async fn a_wait_ends_with_a_timeout(cx: Cx) -> Verdict {
    let (a, b, name) = cx.pair().await?;
    let guard = a.mutex(&name)?.lock().await?;
    for locks in [&a, &b] {
        let error = locks.mutex(&name)?.lock_timeout(Duration::from_millis(30)).await;
        let error = error.err().ok_or("a held lock was granted")?;
        ensure_eq!(error.kind(), ErrorKind::Timeout, "{error}");
    }
    cx.waiters(b.backend(), &name, 0).await?;
    guard.release().await?;
    b.mutex(&name)?.lock().await?.release().await?;
    Ok(())
}

pub(crate) async fn a_busy_client_does_not_starve_another(cx: Cx) -> Verdict {
    let (a, b, name) = cx.pair().await?;
    let stop = Arc::new(AtomicU32::new(0));
    let mut crew = Crew::new();
    for _ in 0..4 {
        let (mutex, stop) = (a.mutex(&name)?, stop.clone());
        crew.go(async move {
            while stop.load(Ordering::Relaxed) == 0 {
                let guard = mutex.lock().await?;
                tokio::task::yield_now().await;
                guard.release().await?;
            }
            Ok(())
        });
    }
    let mutex = b.mutex(&name)?;
    let patient = async {
        for _ in 0..3 {
            mutex.lock().await?.release().await?;
        }
        Verdict::Ok(())
    };
    let fed = patient.await;
    stop.store(1, Ordering::Relaxed);
    crew.done(&cx).await?;
    fed
}

pub(crate) async fn with_runs_the_work_and_releases(cx: Cx) -> Verdict {
    let (a, b, name) = cx.pair().await?;
    let (mutex, other) = (a.mutex(&name)?, b.mutex(&name)?);
    let busy = mutex.with(|_| async { other.try_lock().await.map(|guard| guard.is_none()) });
    ensure!(busy.await??, "the lock is free while the work runs");
    ensure!(other.try_lock().await?.is_some(), "the lock is held after the work");
    Ok(())
}
