//! Owners that enter their own lock again.

use dlock_core::{ErrorKind, Mode, Owner, Renew};

use crate::{
    Verdict,
    case::{Crew, Cx},
    history::{self, Recorder},
    polls::{Ended, drop_after},
    stop::{ensure, ensure_eq},
};

pub(crate) async fn entering_again_keeps_the_token_and_counts(cx: Cx) -> Verdict {
    let (a, _, name) = cx.pair().await?;
    let (lock, owner) = (a.reentrant(&name)?, Owner::new());
    let outer = lock.lock_as(&owner).await?;
    let inner = lock.try_lock_as(&owner).await?.ok_or("an owner finds its own lock busy")?;
    // Another handle of the same client is the same lock.
    let third = a.reentrant(&name)?.lock_as(&owner).await?;
    ensure_eq!([inner.token(), third.token()], [outer.token(); 2], "the tokens");
    for (guard, left) in [(third, 2), (inner, 1), (outer, 0)] {
        ensure_eq!(lock.hold_count(&owner), left + 1, "the count");
        guard.check()?;
        guard.release().await?;
        ensure_eq!(lock.hold_count(&owner), left, "the count after a release");
    }
    Ok(())
}

pub(crate) async fn a_hold_is_known_without_the_handle_it_came_from(cx: Cx) -> Verdict {
    let (a, b, name) = cx.pair().await?;
    let owner = Owner::new();
    let outer = a.reentrant(&name)?.lock_as(&owner).await?;
    ensure_eq!(a.reentrant(&name)?.hold_count(&owner), 1, "the count seen by another handle");
    let inner = a.reentrant(&name)?.try_lock_as(&owner).await?;
    inner.ok_or("an owner finds its own lock busy")?.release().await?;
    outer.release().await?;
    b.mutex(&name)?.try_lock().await?.ok_or("the last release frees nothing")?.release().await?;
    Ok(())
}

pub(crate) async fn the_last_guard_frees_the_lock_whichever_it_is(cx: Cx) -> Verdict {
    let (a, b, name) = cx.pair().await?;
    for outer_first in [true, false] {
        let (lock, owner) = (a.reentrant(&name)?, Owner::new());
        let (outer, inner) = (lock.lock_as(&owner).await?, lock.lock_as(&owner).await?);
        let (first, last) = if outer_first { (outer, inner) } else { (inner, outer) };
        first.release().await?;
        last.check()?;
        ensure!(b.mutex(&name)?.try_lock().await?.is_none(), "one release of two frees the lock");
        last.release().await?;
        b.mutex(&name)?
            .try_lock()
            .await?
            .ok_or("the last release frees nothing")?
            .release()
            .await?;
    }
    Ok(())
}

pub(crate) async fn another_owner_waits(cx: Cx) -> Verdict {
    let (a, b, name) = cx.pair().await?;
    let (mine, other) = (Owner::new(), Owner::new());
    let guard = a.reentrant(&name)?.lock_as(&mine).await?;
    for locks in [&a, &b] {
        let lock = locks.reentrant(&name)?;
        ensure!(lock.try_lock_as(&other).await?.is_none(), "another owner enters");
        ensure_eq!(lock.hold_count(&other), 0, "the count of who holds nothing");
    }
    let waiting = b.reentrant(&name)?;
    let (next, released) = tokio::join!(waiting.lock_as(&other), guard.release());
    released?;
    next?.release().await?;
    Ok(())
}

pub(crate) async fn entering_again_does_not_wait_behind_others(cx: Cx) -> Verdict {
    let (a, b, name) = cx.pair().await?;
    let (lock, owner) = (a.reentrant(&name)?, Owner::new());
    let outer = lock.lock_as(&owner).await?;
    let mutex = b.mutex(&name)?;
    let mut crew = Crew::new();
    crew.go(async move { Ok(mutex.lock().await?.release().await.map(|_| ())?) });
    cx.waiters(a.backend(), &name, 1).await?;
    let inner = cx.within("the owner enters again", lock.lock_as(&owner)).await??;
    inner.release().await?;
    outer.release().await?;
    crew.done(&cx).await
}

pub(crate) async fn tasks_of_one_owner_enter_together(cx: Cx) -> Verdict {
    let (a, _, name) = cx.pair().await?;
    let (lock, owner) = (a.reentrant(&name)?, Owner::new());
    let both = async { tokio::join!(lock.lock_as(&owner), lock.lock_as(&owner)) };
    let (one, two) = cx.within("both tasks of the owner enter", both).await?;
    let (one, two) = (one?, two?);
    ensure_eq!(one.token(), two.token(), "the tokens");
    ensure_eq!(lock.hold_count(&owner), 2, "the count");
    one.release().await?;
    two.release().await?;
    Ok(())
}

pub(crate) async fn a_lost_hold_is_not_entered_again(cx: Cx) -> Verdict {
    let locks = cx.locks_with(cx.brief().with_renew(Renew::Never)).await?;
    let (name, owner) = (cx.name("lock"), Owner::new());
    let lock = locks.reentrant(&name)?;
    let outer = lock.lock_as(&owner).await?;
    cx.within("the hold is lost", outer.lost()).await?;
    let error = lock.lock_as(&owner).await.err().ok_or("a lost hold is entered again")?;
    ensure_eq!(error.kind(), ErrorKind::Lost, "{error}");
    outer.release().await?;
    // The lost hold is released, so the owner acquires the lock again.
    lock.lock_as(&owner).await?.release().await?;
    Ok(())
}

pub(crate) async fn a_cancelled_entry_does_not_count(cx: Cx) -> Verdict {
    let (a, b, name) = cx.pair().await?;
    let (lock, owner) = (a.reentrant(&name)?, Owner::new());
    let held = b.mutex(&name)?.lock().await?;
    for polls in 0..6 {
        match drop_after(polls, lock.lock_as(&owner)).await {
            Ended::Completed(_) => ensure!(false, "a held lock is entered"),
            Ended::Waiting | Ended::Dropped => {}
        }
        ensure_eq!(lock.hold_count(&owner), 0, "the count after {polls} polls");
    }
    held.release().await?;
    let guard = lock.lock_as(&owner).await?;
    drop(drop_after(1, lock.lock_as(&owner)).await);
    ensure_eq!(lock.hold_count(&owner), 1, "the count of the one that is left");
    guard.release().await?;
    b.mutex(&name)?.lock().await?.release().await?;
    Ok(())
}

pub(crate) async fn owners_of_many_entries_never_mix(cx: Cx) -> Verdict {
    let (a, b, name) = cx.pair().await?;
    let recorder = Recorder::new();
    let mut crew = Crew::new();
    for actor in 0..6 {
        let lock = if actor % 2 == 0 { &a } else { &b }.reentrant(&name)?;
        let (owner, recorder) = (Owner::new(), recorder.clone());
        let rounds = cx.effort(6);
        crew.go(async move {
            for round in 0..rounds {
                let mut entries = Vec::new();
                for _ in 0..=round % 3 {
                    let taking = async { lock.lock_as(&owner).await.map(Some) };
                    let held = recorder.acquire(actor, Mode::Exclusive, taking).await?;
                    entries.push(held.ok_or("a lock that waits was busy")?);
                    tokio::task::yield_now().await;
                }
                // The entries are not released in the order of a stack.
                entries.reverse();
                entries.rotate_left(1);
                for held in entries {
                    recorder.release(held).await?;
                }
            }
            Ok(())
        });
    }
    crew.done(&cx).await?;
    let history = recorder.finish();
    history::at_least(&history, 30)?;
    history::reentry::check(&history)?;
    history::exclusion::check(&history)?;
    Ok(history::tokens::check(&history)?)
}
