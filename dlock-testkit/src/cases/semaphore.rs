//! Permits: counted, weighted, first come, first served.

use dlock_core::{ConfigIssue, Error, ErrorKind, Guard, Mode, Renewed};

use super::rwlock::renewed_in_one_batch;
use crate::{
    Stop, Verdict,
    case::{Crew, Cx, pass},
    history::{self, Recorder},
    stop::{ensure, ensure_eq},
    verbs::{ask, leased, queue, release, release_in_vain, renew, take, tried},
};

pub(crate) async fn no_more_permits_are_held_than_there_are(cx: Cx) -> Verdict {
    let (a, b, name) = cx.pair().await?;
    let recorder = Recorder::new();
    let mut crew = Crew::new();
    for actor in 0..8u32 {
        let semaphore = if actor % 2 == 0 { &a } else { &b }.semaphore(&name, 4)?;
        let (recorder, rounds) = (recorder.clone(), cx.effort(6));
        crew.go(async move {
            for round in 0..rounds {
                let n = 1 + (actor + round) % 4;
                let taking = async { semaphore.acquire_many(n).await.map(Some) };
                let mode = Mode::permits(n, 4)?;
                let held = recorder.acquire(usize::try_from(actor)?, mode, taking).await?;
                tokio::task::yield_now().await;
                recorder.release(held.ok_or("a semaphore that waits was busy")?).await?;
            }
            Ok(())
        });
    }
    crew.done(&cx).await?;
    let history = recorder.finish();
    history::at_least(&history, 48)?;
    history::permits::check(&history, 4)?;
    Ok(history::tokens::check(&history)?)
}

pub(crate) async fn a_try_without_free_permits_is_none(cx: Cx) -> Verdict {
    let (a, b, name) = cx.pair().await?;
    let one = a.semaphore(&name, 2)?.acquire().await?;
    let two = b.semaphore(&name, 2)?.try_acquire().await?.ok_or("the second of two is spent")?;
    for locks in [&a, &b] {
        ensure!(locks.semaphore(&name, 2)?.try_acquire().await?.is_none(), "a third of two");
    }
    one.release().await?;
    let again = b.semaphore(&name, 2)?.try_acquire().await?.ok_or("a returned permit is spent")?;
    two.release().await?;
    again.release().await?;
    Ok(())
}

pub(crate) async fn weights_count(cx: Cx) -> Verdict {
    let (a, b, name) = cx.pair().await?;
    let three = a.semaphore(&name, 5)?.acquire_many(3).await?;
    let semaphore = b.semaphore(&name, 5)?;
    ensure!(semaphore.try_acquire_many(3).await?.is_none(), "six of five");
    let two = semaphore.try_acquire_many(2).await?.ok_or("five of five do not fit")?;
    ensure!(semaphore.try_acquire().await?.is_none(), "a sixth of five");
    three.release().await?;
    let more = semaphore.try_acquire_many(3).await?.ok_or("three came back")?;
    more.release().await?;
    two.release().await?;
    let all = a.semaphore(&name, 5)?.try_acquire_many(5).await?.ok_or("all are back")?;
    all.release().await?;
    Ok(())
}

pub(crate) async fn a_returned_permit_wakes_a_waiter(cx: Cx) -> Verdict {
    let (a, b, name) = cx.pair().await?;
    let held = [a.semaphore(&name, 2)?.acquire().await?, b.semaphore(&name, 2)?.acquire().await?];
    let mut crew = Crew::new();
    for locks in [&a, &b, &a] {
        let semaphore = locks.semaphore(&name, 2)?;
        crew.go(async move { Ok(semaphore.acquire().await?.release().await.map(|_| ())?) });
    }
    cx.waiters(a.backend(), &name, 3).await?;
    for guard in held {
        guard.release().await?;
    }
    crew.done(&cx).await
}

pub(crate) async fn a_claim_for_many_is_not_starved(cx: Cx) -> Verdict {
    let (backend, name) = (cx.backend().await?, cx.name("permits"));
    let n = |n| Mode::permits(n, 3).map(|mode| ask(&name, mode));
    let (first, heavy, light) = (n(1)?, n(3)?, n(1)?);
    take(&backend, &first).await?;
    queue(&backend, &heavy).await?;
    ensure!(tried(&backend, &light).await?.is_none(), "a light claim passes a heavy one");
    queue(&backend, &light).await?;
    release(&backend, &first).await?;
    cx.within("the heavy claim is granted", backend.granted(&heavy)).await??;
    queue(&backend, &light).await?;
    release(&backend, &heavy).await?;
    cx.within("the light claim is granted", backend.granted(&light)).await??;
    release(&backend, &light).await
}

pub(crate) async fn light_claims_are_granted_when_a_heavy_one_cancels(cx: Cx) -> Verdict {
    let (backend, name) = (cx.backend().await?, cx.name("permits"));
    let n = |n| Mode::permits(n, 3).map(|mode| ask(&name, mode));
    let (first, heavy, light) = (n(1)?, n(3)?, n(2)?);
    take(&backend, &first).await?;
    queue(&backend, &heavy).await?;
    queue(&backend, &light).await?;
    release(&backend, &heavy).await?;
    cx.within("the light claim is granted", backend.granted(&light)).await??;
    release(&backend, &light).await?;
    release(&backend, &first).await
}

pub(crate) async fn permits_of_dead_holders_come_back(cx: Cx) -> Verdict {
    let (backend, name) = (cx.backend().await?, cx.name("permits"));
    let n = |n| Mode::permits(n, 3).map(|mode| ask(&name, mode));
    let (alive, dead, next) = (n(1)?, leased(n(2)?, cx.lease()), n(2)?);
    take(&backend, &alive).await?;
    take(&backend, &dead).await?;
    pass(cx.lease() * 2).await;
    tried(&backend, &next).await?.ok_or("permits whose lease ended are spent")?;
    release(&backend, &next).await?;
    release(&backend, &alive).await
}

/// The holders of permits share the semaphore, but not the lease.
pub(crate) async fn a_renewal_of_permits_extends_no_other(cx: Cx) -> Verdict {
    let (a, b, name) = (cx.backend().await?, cx.backend().await?, cx.name("permits"));
    let one = || Mode::permits(1, 2).map(|mode| ask(&name, mode));
    let (dead, alive, next) = (leased(one()?, cx.renewed()), one()?, one()?);
    take(&b, &dead).await?;
    take(&a, &alive).await?;
    ensure_eq!(renew(&a, &alive, alive.lease).await?, Renewed::Kept, "the renewal");
    cx.until("one holder is left", || async { Ok(a.inspect(&name).await?.holders.len() == 1) })
        .await?;
    release_in_vain(&b, &dead).await?;
    tried(&b, &next).await?.ok_or("a permit whose lease ended is spent")?;
    release(&b, &next).await?;
    release(&a, &alive).await
}

pub(crate) async fn holders_of_permits_are_renewed_in_one_batch(cx: Cx) -> Verdict {
    renewed_in_one_batch(&cx, Mode::permits(1, 3)?).await
}

pub(crate) async fn another_number_of_permits_is_refused_while_in_use(cx: Cx) -> Verdict {
    let (a, b, name) = cx.pair().await?;
    let guard = a.semaphore(&name, 3)?.acquire().await?;
    let refused = [
        b.semaphore(&name, 5)?.try_acquire().await,
        b.semaphore(&name, 2)?.acquire().await.map(Some),
        b.mutex(&name)?.try_lock().await,
        b.rw(&name)?.read().lock().await.map(Some),
    ];
    for result in refused {
        is(result, ConfigIssue::Capacity)?;
    }
    guard.check()?;
    guard.release().await?;
    let held = b.mutex(&name)?.lock().await?;
    is(a.semaphore(&name, 3)?.try_acquire().await, ConfigIssue::Capacity)?;
    held.release().await?;
    b.semaphore(&name, 5)?.acquire().await?.release().await?;
    Ok(())
}

pub(crate) async fn more_than_all_and_none_are_refused(cx: Cx) -> Verdict {
    let (a, _, name) = cx.pair().await?;
    let semaphore = a.semaphore(&name, 3)?;
    ensure_eq!(semaphore.permits(), 3, "the permits");
    for n in [0, 4, u32::MAX] {
        is(semaphore.try_acquire_many(n).await, ConfigIssue::Permits)?;
        is(semaphore.acquire_many(n).await.map(Some), ConfigIssue::Permits)?;
    }
    for permits in [0, Mode::MAX_PERMITS + 1, u32::MAX] {
        let result = match a.semaphore(&name, permits) {
            Ok(semaphore) => semaphore.try_acquire().await,
            Err(error) => Err(error),
        };
        is(result, ConfigIssue::Permits)?;
    }
    let most = a.semaphore(&name, Mode::MAX_PERMITS)?;
    most.acquire_many(Mode::MAX_PERMITS).await?.release().await?;
    Ok(())
}

pub(crate) async fn without_permits_it_is_refused(cx: Cx) -> Verdict {
    let (a, _, name) = cx.pair().await?;
    let error = a.semaphore(&name, 2).err().ok_or("a semaphore on a store without permits")?;
    ensure_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    Ok(())
}

#[track_caller]
fn is(result: Result<Option<Guard>, Error>, issue: ConfigIssue) -> Verdict {
    match result {
        Err(error) if error.kind() == ErrorKind::Config(issue) => Ok(()),
        other => Err(Stop::failed(format!("{other:?} where {issue:?} is expected"))),
    }
}
