//! Dropped futures leave nothing behind.

use std::time::Duration;

use dlock_core::{DynBackend, Error, Guard, LockName, Locks, Owner, Renewal, Renewed};

use crate::{
    Stop, Verdict,
    case::{Crew, Cx},
    faulty_backend::FaultyBackend,
    polls::{Ended, drop_after},
    stop::{ensure, ensure_eq},
    verbs::{alone, queue, release, take},
};

/// A number larger than the number of await points of any acquisition.
const ENOUGH: usize = 60;

pub(crate) async fn a_mutex_at_every_poll(cx: Cx) -> Verdict {
    at_every_poll(&cx, async |locks: &Locks, name: &LockName| locks.mutex(name)?.lock().await).await
}

pub(crate) async fn a_try_at_every_poll(cx: Cx) -> Verdict {
    at_every_poll(&cx, async |locks: &Locks, name: &LockName| {
        match locks.mutex(name)?.try_lock().await? {
            Some(guard) => Ok(guard),
            None => std::future::pending().await,
        }
    })
    .await
}

pub(crate) async fn a_mutex_without_handoff_at_every_poll(cx: Cx) -> Verdict {
    at_every_poll(&cx, async |locks: &Locks, name: &LockName| {
        locks.without_handoff().mutex(name)?.lock().await
    })
    .await
}

pub(crate) async fn a_reader_and_a_writer_at_every_poll(cx: Cx) -> Verdict {
    at_every_poll(&cx, async |locks: &Locks, name: &LockName| locks.rw(name)?.write().lock().await)
        .await?;
    at_every_poll(&cx, async |locks: &Locks, name: &LockName| locks.rw(name)?.read().lock().await)
        .await
}

pub(crate) async fn an_owner_at_every_poll(cx: Cx) -> Verdict {
    at_every_poll(&cx, async |locks: &Locks, name: &LockName| {
        locks.reentrant(name)?.lock_as(&Owner::new()).await
    })
    .await
}

pub(crate) async fn a_multi_lock_at_every_poll(cx: Cx) -> Verdict {
    let more = [cx.name("more"), cx.name("again")];
    at_every_poll(&cx, async |locks: &Locks, name: &LockName| {
        locks.multi([&more[0], name, &more[1]])?.lock().await
    })
    .await?;
    let backend = cx.backend().await?;
    for name in &more {
        cx.free(&backend, name).await?;
    }
    Ok(())
}

pub(crate) async fn a_request_that_waits_for_its_answer_at_every_poll(cx: Cx) -> Verdict {
    let (fast, name) = (cx.locks().await?, cx.name("lock"));
    let late = cx.locks_over(FaultyBackend::late(cx.backend().await?), cx.steady())?;
    dropped_at_every_poll(&cx, (&late, &fast, &name), async |locks: &Locks, name: &LockName| {
        locks.mutex(name)?.lock().await
    })
    .await
}

pub(crate) async fn permits_at_every_poll(cx: Cx) -> Verdict {
    let (slow, fast, name) = slow_and_fast(&cx).await?;
    for held in [false, true] {
        for polls in 0..ENOUGH {
            let gate = match held {
                true => Some(fast.semaphore(&name, 2)?.acquire().await?),
                false => None,
            };
            let semaphore = slow.semaphore(&name, 2)?;
            let ended = drop_after(polls, semaphore.acquire_many(2)).await;
            let more = matches!(ended, Ended::Dropped);
            drop(ended);
            drop(gate);
            fast.semaphore(&name, 2)?.acquire_many(2).await?.release().await?;
            if !more {
                break;
            }
        }
    }
    cx.free(fast.backend(), &name).await
}

/// Drops the acquisition of a slow client after each number of polls.
async fn at_every_poll<T>(cx: &Cx, taking: T) -> Verdict
where
    T: AsyncFn(&Locks, &LockName) -> Result<Guard, Error>,
{
    let (slow, fast, name) = slow_and_fast(cx).await?;
    dropped_at_every_poll(cx, (&slow, &fast, &name), taking).await
}

/// Drops the acquisition of a free lock by the first client, and of a held one, after each number of
/// polls. Each time, the second client then acquires the lock.
async fn dropped_at_every_poll<T>(
    cx: &Cx,
    (slow, fast, name): (&Locks, &Locks, &LockName),
    taking: T,
) -> Verdict
where
    T: AsyncFn(&Locks, &LockName) -> Result<Guard, Error>,
{
    for held in [false, true] {
        let mut dropped = 0;
        for polls in 0..ENOUGH {
            let gate = match held {
                true => Some(fast.rw(name)?.write().lock().await?),
                false => None,
            };
            let ended = drop_after(polls, taking(slow, name)).await;
            if held && matches!(ended, Ended::Completed(_)) {
                return Err(Stop::failed(format!("a held lock is granted: {ended:?}")));
            }
            if let Ended::Completed(Err(error)) = ended {
                return Err(error.into());
            }
            let more = matches!(ended, Ended::Dropped);
            dropped += u32::from(more);
            drop(ended);
            drop(gate);
            let next = cx.within("the next claim is granted", fast.mutex(name)?.lock()).await?;
            next.map_err(|error| format!("after {polls} polls: {error}"))?.release().await?;
            if !more {
                break;
            }
        }
        ensure!(dropped > 1, "there was nothing to drop at");
    }
    cx.free(fast.backend(), name).await
}

/// Returns a slow client, whose futures have await points to be dropped at, and another client.
async fn slow_and_fast(cx: &Cx) -> Result<(Locks, Locks, LockName), Stop> {
    let slow = cx.locks_over(FaultyBackend::slow(cx.backend().await?), cx.steady())?;
    Ok((slow, cx.locks().await?, cx.name("lock")))
}

pub(crate) async fn a_cancelled_waiter_leaves_the_queue(cx: Cx) -> Verdict {
    let (a, b, name) = cx.pair().await?;
    let gate = a.mutex(&name)?.lock().await?;
    let mutex = b.mutex(&name)?;
    for _ in 0..3 {
        let waiting = tokio::time::timeout(Duration::from_millis(20), mutex.lock()).await;
        ensure!(waiting.is_err(), "a held lock is granted");
        cx.waiters(a.backend(), &name, 0).await?;
    }
    gate.release().await?;
    b.mutex(&name)?.lock().await?.release().await?;
    Ok(())
}

pub(crate) async fn a_grant_that_nobody_takes_passes_on(cx: Cx) -> Verdict {
    let (a, b, c) = (cx.locks().await?, cx.locks().await?, cx.locks().await?);
    let name = cx.name("lock");
    for round in 0..cx.effort(10) {
        let gate = a.fair(&name)?.lock().await?;
        let (second, third) = (b.fair(&name)?, c.fair(&name)?);
        let mut doomed = tokio::task::JoinSet::new();
        doomed.spawn(async move { drop(second.lock().await) });
        cx.waiters(a.backend(), &name, 1).await?;
        let mut crew = Crew::new();
        crew.go(async move { Ok(third.lock().await?.release().await.map(|_| ())?) });
        cx.waiters(a.backend(), &name, 2).await?;
        // In each round, the cancel coincides with another point of the release.
        let cancel = async {
            for _ in 0..round {
                tokio::task::yield_now().await;
            }
            doomed.abort_all();
        };
        let (released, ()) = tokio::join!(gate.release(), cancel);
        released?;
        crew.done(&cx).await?;
    }
    Ok(())
}

pub(crate) async fn a_thousand_at_random(cx: Cx) -> Verdict {
    let clients = [cx.locks().await?, cx.locks().await?];
    let names = [cx.name("a"), cx.name("b"), cx.name("c"), cx.name("d")];
    let mut crew = Crew::new();
    for actor in 0..8usize {
        let locks = &clients[actor % 2];
        let locks = if actor % 4 < 2 { locks.clone() } else { locks.without_handoff() };
        let (names, rounds) = (names.clone(), cx.effort(125));
        crew.go(async move {
            for round in 0..rounds {
                let mutex = locks.mutex(&names[rand::random_range(0..2) + actor / 4 * 2])?;
                // If a store is slower than the limit, cancelled requests pile up. Without this
                // wait it would have to process thousands of them before the renewals of other
                // cases.
                if round % 8 == 7 {
                    mutex.lock().await?.release().await?;
                }
                let limit = Duration::from_micros(rand::random_range(0..3_000));
                match tokio::time::timeout(limit, mutex.lock()).await {
                    Ok(guard) if rand::random_bool(0.5) => drop(guard?),
                    Ok(guard) => {
                        guard?.release().await?;
                    }
                    Err(_) => {}
                }
            }
            Ok(())
        });
    }
    crew.done(&cx).await?;
    for name in &names {
        cx.free(clients[0].backend(), name).await?;
        for locks in &clients {
            locks.mutex(name)?.lock().await?.release().await?;
        }
    }
    Ok(())
}

pub(crate) async fn a_release_goes_on_when_it_is_dropped(cx: Cx) -> Verdict {
    let (slow, fast, name) = slow_and_fast(&cx).await?;
    for polls in 0..ENOUGH {
        let guard = slow.mutex(&name)?.lock().await?;
        let ended = drop_after(polls, guard.release()).await;
        fast.mutex(&name)?.lock().await?.release().await?;
        if matches!(ended, Ended::Completed(_)) {
            return Ok(());
        }
    }
    Err(Stop::failed("a release does not end"))
}

pub(crate) async fn waiting_for_a_grant_may_be_dropped(cx: Cx) -> Verdict {
    let (a, b, name) = (cx.backend().await?, cx.backend().await?, cx.name("lock"));
    for polls in 0..6 {
        let [gate, dropped, next] = [alone(&name), alone(&name), alone(&name)];
        take(&a, &gate).await?;
        queue(&b, &dropped).await?;
        queue(&a, &next).await?;
        let dropping = drop_after(polls, b.granted(&dropped));
        let (_, released) = tokio::join!(dropping, release(&a, &gate));
        released?;
        // The claim held the lock or waited; the release ends it in both states.
        release(&b, &dropped).await?;
        cx.within("the next is granted", a.granted(&next)).await??;
        release(&a, &next).await?;
        usable(&b, &name).await?;
    }
    Ok(())
}

pub(crate) async fn renewals_and_reads_may_be_dropped(cx: Cx) -> Verdict {
    let (backend, name) = (cx.backend().await?, cx.name("lock"));
    let held = alone(&name);
    take(&backend, &held).await?;
    let renewals = [Renewal::new(held.as_claim(), held.mode, held.lease)];
    for polls in 1..6 {
        drop_after(polls, backend.renew(&renewals)).await;
        drop_after(polls, backend.inspect(&name)).await;
        let renewed = cx.within("the next renewal", backend.renew(&renewals)).await??;
        ensure_eq!(renewed, [Renewed::Kept], "the next renewal");
    }
    release(&backend, &held).await?;
    usable(&backend, &name).await
}

async fn usable(backend: &DynBackend, name: &LockName) -> Verdict {
    let request = alone(name);
    take(backend, &request).await?;
    ensure_eq!(backend.inspect(name).await?.holders.len(), 1, "the holders");
    release(backend, &request).await
}
