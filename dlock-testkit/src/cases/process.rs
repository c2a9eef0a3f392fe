//! Real processes that acquire and hold locks, are stopped, and are killed.

#[cfg(unix)]
use std::time::Duration;

use dlock_core::Fence;
#[cfg(unix)]
use dlock_core::{LockName, Locks};
#[cfg(unix)]
use tokio::time::timeout;

use crate::{
    Verdict,
    case::{Crew, Cx, pass},
    child::{Process, held},
    stop::{ensure, ensure_eq, ensure_safe},
};

pub(crate) async fn a_process_excludes_another(cx: Cx) -> Verdict {
    let (locks, name) = (cx.locks().await?, cx.name("lock"));
    let mut child = Process::start(&cx)?;
    let theirs = child.lock(&name, cx.steady().lease()).await?;
    ensure_safe!(
        locks.mutex(&name)?.try_lock().await?.is_none(),
        "a lock of another process is free"
    );
    let (mutex, mut crew) = (locks.mutex(&name)?, Crew::new());
    crew.go(async move {
        let guard = mutex.lock().await?;
        ensure_safe!(guard.token() > theirs, "{:?} after {theirs:?}", guard.token());
        guard.release().await?;
        Ok(())
    });
    cx.waiters(locks.backend(), &name, 1).await?;
    ensure_eq!(child.ask("release").await?, "released", "the answer");
    crew.done(&cx).await
}

pub(crate) async fn processes_hand_off_to_each_other(cx: Cx) -> Verdict {
    let (locks, name) = (cx.locks().await?, cx.name("lock"));
    let mut child = Process::start(&cx)?;
    for _ in 0..cx.effort(5) {
        let guard = locks.fair(&name)?.lock().await?;
        let ours = guard.token();
        child.tell(&format!("lock {name} {}", cx.steady().lease().as_millis())).await?;
        cx.waiters(locks.backend(), &name, 1).await?;
        guard.release().await?;
        let theirs = held(&child.answer().await?)?;
        ensure!(theirs > ours, "{theirs:?} after {ours:?}");
        ensure_eq!(child.ask("release").await?, "released", "the answer");
    }
    Ok(())
}

pub(crate) async fn a_killed_process_loses_its_lock_after_its_lease(cx: Cx) -> Verdict {
    let (locks, name) = (cx.locks().await?, cx.name("lock"));
    let mut child = Process::start(&cx)?;
    let theirs = child.lock(&name, cx.lease()).await?;
    child.kill().await?;
    let guard = locks.mutex(&name)?.lock().await?;
    ensure_safe!(guard.token() > theirs, "{:?} after {theirs:?}", guard.token());
    guard.release().await?;
    Ok(())
}

pub(crate) async fn a_killed_waiter_is_passed_over(cx: Cx) -> Verdict {
    let (locks, name) = (cx.locks().await?, cx.name("lock"));
    let mut child = Process::start(&cx)?;
    let guard = locks.fair(&name)?.lock().await?;
    child.tell(&format!("lock {name} {}", cx.lease().as_millis())).await?;
    cx.waiters(locks.backend(), &name, 1).await?;
    child.kill().await?;
    let (fair, mut crew) = (locks.fair(&name)?, Crew::new());
    crew.go(async move { Ok(fair.lock().await?.release().await.map(|_| ())?) });
    guard.release().await?;
    crew.done(&cx).await
}

/// The largest number of attempts to stop a process at a point where the store still works.
#[cfg(unix)]
const STOPS: usize = 10;

/// Whether the store grants locks. If the store is a file, a process that is stopped during a
/// transaction blocks all others.
#[cfg(unix)]
async fn works(locks: &Locks, name: &LockName) -> bool {
    let took = async { locks.mutex(name)?.lock().await?.release().await };
    timeout(Duration::from_secs(1), took).await.is_ok_and(|took| took.is_ok())
}

#[cfg(unix)]
pub(crate) async fn a_stopped_process_is_fenced_off(cx: Cx) -> Verdict {
    let (locks, name, fence) = (cx.locks().await?, cx.name("lock"), Fence::new());
    let mut child = Process::start(&cx)?;
    let mut tries = 0;
    let theirs = loop {
        let theirs = child.lock(&name, cx.lease()).await?;
        child.stop()?;
        tries += 1;
        if tries == STOPS || works(&locks, &cx.name("other")).await {
            break theirs;
        }
        child.resume()?;
        child.ask("release").await?;
    };
    fence.admit(theirs)?;
    // The lease of the child has expired: the next holder is granted and writes.
    let guard = locks.mutex(&name)?.lock().await?;
    fence.admit(guard.token())?;
    child.resume()?;
    ensure_eq!(child.ask("check").await?, "lost", "the answer of who was stopped");
    ensure!(fence.admit(theirs).is_err(), "the write of who was stopped passes");
    ensure_eq!(child.ask("release").await?, "already lost", "the answer");
    guard.check()?;
    guard.release().await?;
    Ok(())
}

#[cfg(not(unix))]
pub(crate) async fn a_stopped_process_is_fenced_off(_: Cx) -> Verdict {
    Err(crate::Stop::ruled_out("this system can't stop a process"))
}

pub(crate) async fn a_counter_of_many_processes_is_exact(cx: Cx) -> Verdict {
    let (name, dir) = (cx.name("lock"), tempfile::tempdir()?);
    let file = dir.path().join("counter");
    std::fs::write(&file, "0")?;
    let (file, rounds) = (file.display().to_string(), cx.effort(15));
    let mut children = Vec::new();
    for _ in 0..4 {
        children.push(Process::start(&cx)?);
    }
    // Without the lock the counter is wrong: both children read it before one of them writes.
    for child in &mut children {
        ensure_eq!(child.ask(&format!("read {file}")).await?, "0", "the counter");
    }
    for child in &mut children {
        child.ask(&format!("write {file} 1")).await?;
    }
    ensure_eq!(std::fs::read_to_string(&file)?, "1", "four additions without the lock");
    for child in &mut children {
        child.tell(&format!("count {name} {file} {rounds}")).await?;
    }
    for child in &mut children {
        ensure_eq!(child.answer().await?, "ok", "the answer");
    }
    let exact = (1 + 4 * rounds).to_string();
    ensure_eq!(std::fs::read_to_string(&file)?, exact, "the counter");
    Ok(())
}

pub(crate) async fn a_busy_process_does_not_starve_another(cx: Cx) -> Verdict {
    let (locks, name) = (cx.locks().await?, cx.name("lock"));
    let mut child = Process::start(&cx)?;
    let mut busy = Crew::new();
    for _ in 0..4 {
        let mutex = locks.mutex(&name)?;
        busy.go(async move {
            loop {
                // Not `with`, which returns only after the last hand-off.
                let guard = mutex.lock().await?;
                tokio::task::yield_now().await;
                let _ = guard.release().await?;
            }
        });
    }
    for _ in 0..3 {
        child.lock(&name, cx.steady().lease()).await?;
        ensure_eq!(child.ask("release").await?, "released", "the answer");
    }
    drop(busy);
    Ok(())
}

pub(crate) async fn readers_of_two_processes_share(cx: Cx) -> Verdict {
    let (locks, name) = (cx.locks().await?, cx.name("lock"));
    let mut child = Process::start(&cx)?;
    let reader = locks.rw(&name)?.read().lock().await?;
    let share = format!("share {name} {}", cx.steady().lease().as_millis());
    let theirs = held(&child.ask(&share).await?)?;
    ensure!(theirs > reader.token(), "{theirs:?} after {:?}", reader.token());
    reader.release().await?;
    let write = locks.rw(&name)?;
    ensure!(write.write().try_lock().await?.is_none(), "a writer beside another's reader");
    ensure_eq!(child.ask("release").await?, "released", "the answer");
    write.write().lock().await?.release().await?;
    Ok(())
}

pub(crate) async fn a_process_renews_what_it_holds(cx: Cx) -> Verdict {
    let (locks, name) = (cx.locks().await?, cx.name("lock"));
    let lease = cx.renewed();
    let mut child = Process::start(&cx)?;
    let theirs = child.lock(&name, lease).await?;
    pass(lease * 3 / 2).await;
    ensure!(locks.mutex(&name)?.try_lock().await?.is_none(), "a renewed lock is free");
    ensure_eq!(held(&child.ask("check").await?)?, theirs, "the token");
    ensure_eq!(child.ask("release").await?, "released", "the answer");
    Ok(())
}
