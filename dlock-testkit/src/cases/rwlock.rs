//! Readers share the lock, writers hold it alone, and neither side starves.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use dlock_core::{AcquireRequest, DynBackend, ErrorKind, LockName, Locks, Mode, Renewal, Renewed};

use super::multi::of_one_shard;
use crate::{
    Stop, Verdict,
    case::{Crew, Cx, pass},
    history::{self, Recorder},
    stop::{ensure, ensure_eq, ensure_safe},
    verbs::{alone, ask, downgrade, leased, queue, release, release_in_vain, renew, take, tried},
};

pub(crate) async fn a_renewal_never_strengthens_a_claim(cx: Cx) -> Verdict {
    let (a, b, name) = (cx.backend().await?, cx.backend().await?, cx.name("lock"));
    let [one, two] = [ask(&name, Mode::Shared), ask(&name, Mode::Shared)];
    take(&a, &one).await?;
    let stronger = one.clone().with_mode(Mode::Exclusive);
    ensure_eq!(renew(&a, &stronger, one.lease).await?, Renewed::Kept, "the renewal");
    let modes = modes(&b, &name).await?;
    ensure_eq!(modes, [Mode::Shared], "the modes after a renewal in a stronger mode");
    take(&b, &two).await?;
    release(&a, &one).await?;
    release(&b, &two).await
}

pub(crate) async fn a_downgrade_in_a_batch_weakens_no_other_claim(cx: Cx) -> Verdict {
    let (a, b) = (cx.backend().await?, cx.backend().await?);
    for is_reversed in [true, false] {
        let [writer, weaker] = ["writer", "weaker"].map(|hint| alone(&cx.name(hint)));
        take(&a, &writer).await?;
        take(&a, &weaker).await?;
        let renewal = |of: &AcquireRequest, mode| Renewal::new(of.as_claim(), mode, of.lease);
        let mut batch = [renewal(&writer, Mode::Exclusive), renewal(&weaker, Mode::Shared)];
        if is_reversed {
            batch.reverse();
        }
        ensure_eq!(a.renew(&batch).await?, [Renewed::Kept; 2], "the answers");
        // A session store completes a downgrade in the background, to delay no other renewal.
        cx.until("the weaker claim is a reader", || async {
            Ok(modes(&b, &weaker.name).await? == [Mode::Shared])
        })
        .await?;
        ensure_eq!(modes(&b, &writer.name).await?, [Mode::Exclusive], "the modes of the writer");
        let reader = ask(&writer.name, Mode::Shared);
        ensure_safe!(tried(&b, &reader).await?.is_none(), "a reader beside a writer");
        release(&a, &writer).await?;
        release(&a, &weaker).await?;
    }
    Ok(())
}

/// Returns the modes of the holders of a name.
async fn modes(backend: &DynBackend, name: &LockName) -> Result<Vec<Mode>, Stop> {
    Ok(backend.inspect(name).await?.holders.iter().map(|holder| holder.mode).collect())
}

/// Readers share the lock, but not the lease: a dead reader would otherwise keep writers out for as
/// long as others are renewed.
pub(crate) async fn a_renewal_of_a_reader_extends_no_other(cx: Cx) -> Verdict {
    let (a, b, name) = (cx.backend().await?, cx.backend().await?, cx.name("lock"));
    let (dead, alive) = (ask(&name, Mode::Shared), ask(&name, Mode::Shared));
    let dead = leased(dead, cx.renewed());
    take(&b, &dead).await?;
    take(&a, &alive).await?;
    ensure_eq!(renew(&a, &alive, alive.lease).await?, Renewed::Kept, "the renewal");
    cx.until("one reader is left", || async { Ok(modes(&a, &name).await?.len() == 1) }).await?;
    release_in_vain(&b, &dead).await?;
    release(&a, &alive).await
}

pub(crate) async fn readers_of_one_lock_are_renewed_in_one_batch(cx: Cx) -> Verdict {
    renewed_in_one_batch(&cx, Mode::Shared).await
}

/// Renews two holders of one lock with one call, which has another lock and a claim that is gone
/// between them. Each must be renewed, and have its own answer.
pub(crate) async fn renewed_in_one_batch(cx: &Cx, mode: Mode) -> Verdict {
    let (a, b) = (cx.backend().await?, cx.backend().await?);
    let [name, other]: [_; 2] = of_one_shard(cx, &a);
    let brief = |name, mode| leased(ask(name, mode), cx.renewed());
    let [first, gone, second] = [(); 3].map(|()| brief(&name, mode));
    let other = brief(&other, Mode::Exclusive);
    for request in [&first, &other, &second] {
        take(&a, request).await?;
    }
    let long = alone(&name).lease;
    let batch =
        [&first, &gone, &other, &second].map(|of| Renewal::new(of.as_claim(), of.mode, long));
    let answers = a.renew(&batch).await?;
    let kept: Vec<_> = answers.iter().map(|answer| *answer == Renewed::Kept).collect();
    ensure_eq!(kept, [true, false, true, true], "the holders that are kept: {answers:?}");
    // The leases with which they were acquired have ended by then.
    pass(cx.renewed() * 3 / 2).await;
    ensure_eq!(modes(&b, &name).await?, [mode; 2], "the holders that were renewed together");
    for request in [&first, &other, &second] {
        release(&a, request).await?;
    }
    Ok(())
}

pub(crate) async fn readers_share(cx: Cx) -> Verdict {
    let (a, b, name) = cx.pair().await?;
    let mut guards = Vec::new();
    for locks in [&a, &b, &a, &b] {
        let guard = locks.rw(&name)?.read().try_lock().await?;
        guards.push(guard.ok_or("a reader finds readers in its way")?);
    }
    for guard in guards {
        guard.check()?;
        guard.release().await?;
    }
    Ok(())
}

pub(crate) async fn a_writer_is_alone(cx: Cx) -> Verdict {
    let (a, b, name) = cx.pair().await?;
    let writer = a.rw(&name)?.write().lock().await?;
    for locks in [&a, &b] {
        let rw = locks.rw(&name)?;
        ensure!(rw.read().try_lock().await?.is_none(), "a reader beside a writer");
        ensure!(rw.write().try_lock().await?.is_none(), "a writer beside a writer");
        ensure!(locks.mutex(&name)?.try_lock().await?.is_none(), "a mutex beside a writer");
    }
    writer.release().await?;
    let reader = a.rw(&name)?.read().lock().await?;
    ensure!(b.rw(&name)?.write().try_lock().await?.is_none(), "a writer beside a reader");
    reader.release().await?;
    Ok(())
}

pub(crate) async fn readers_and_writers_never_mix(cx: Cx) -> Verdict {
    let (a, b, name) = cx.pair().await?;
    let recorder = Recorder::new();
    let mut crew = Crew::new();
    for actor in 0..8 {
        let rw = if actor % 2 == 0 { &a } else { &b }.rw(&name)?;
        let (recorder, rounds) = (recorder.clone(), cx.effort(8));
        crew.go(async move {
            for _ in 0..rounds {
                let writes = rand::random_bool(0.3);
                let (side, mode) = match writes {
                    true => (rw.write(), Mode::Exclusive),
                    false => (rw.read(), Mode::Shared),
                };
                let taking = async { side.lock().await.map(Some) };
                let held = recorder.acquire(actor, mode, taking).await?;
                let mut held = held.ok_or("a lock that waits was busy")?;
                tokio::task::yield_now().await;
                if writes && rand::random_bool(0.5) {
                    recorder.downgrade(&mut held).await?;
                    tokio::task::yield_now().await;
                }
                recorder.release(held).await?;
            }
            Ok(())
        });
    }
    crew.done(&cx).await?;
    let history = recorder.finish();
    history::at_least(&history, 64)?;
    history::shared::check(&history)?;
    history::exclusion::check(&history)?;
    Ok(history::tokens::check(&history)?)
}

pub(crate) async fn waiting_readers_are_granted_together(cx: Cx) -> Verdict {
    let (backend, name) = (cx.backend().await?, cx.name("lock"));
    let (writer, readers) = (alone(&name), [(); 3].map(|()| ask(&name, Mode::Shared)));
    take(&backend, &writer).await?;
    for reader in &readers {
        queue(&backend, reader).await?;
    }
    release(&backend, &writer).await?;
    for reader in &readers {
        cx.within("each reader is granted", backend.granted(reader)).await??;
    }
    ensure_eq!(backend.inspect(&name).await?.holders.len(), 3, "the holders");
    for reader in &readers {
        release(&backend, reader).await?;
    }
    Ok(())
}

pub(crate) async fn a_reader_does_not_pass_a_waiting_writer(cx: Cx) -> Verdict {
    let (backend, name) = (cx.backend().await?, cx.name("lock"));
    let (writer, [first, second]) = (alone(&name), [(); 2].map(|()| ask(&name, Mode::Shared)));
    take(&backend, &first).await?;
    queue(&backend, &writer).await?;
    ensure!(tried(&backend, &second).await?.is_none(), "a try passes a waiting writer");
    queue(&backend, &second).await?;
    release(&backend, &first).await?;
    cx.within("the writer is granted", backend.granted(&writer)).await??;
    queue(&backend, &second).await?;
    release(&backend, &writer).await?;
    cx.within("the reader is granted", backend.granted(&second)).await??;
    release(&backend, &second).await
}

pub(crate) async fn a_writer_is_not_starved_by_readers(cx: Cx) -> Verdict {
    let (a, b, name) = cx.pair().await?;
    not_starved(&cx, &name, [&a, &b], false).await
}

pub(crate) async fn a_reader_is_not_starved_by_writers(cx: Cx) -> Verdict {
    let (a, b, name) = cx.pair().await?;
    not_starved(&cx, &name, [&a, &b], true).await
}

/// Checks that the other side is granted the lock while tasks of one side hold it without a gap.
async fn not_starved(cx: &Cx, name: &LockName, [many, one]: [&Locks; 2], writers: bool) -> Verdict {
    let stop = Arc::new(AtomicBool::new(false));
    let mut crew = Crew::new();
    for _ in 0..4 {
        let (rw, stop) = (many.rw(name)?, stop.clone());
        crew.go(async move {
            let side = if writers { rw.write() } else { rw.read() };
            while !stop.load(Ordering::Relaxed) {
                let guard = side.lock().await?;
                tokio::time::sleep(std::time::Duration::from_millis(2)).await;
                guard.release().await?;
            }
            Ok(())
        });
    }
    let rw = one.rw(name)?;
    let side = if writers { rw.read() } else { rw.write() };
    let fed = async {
        for _ in 0..3 {
            side.lock().await?.release().await?;
        }
        Verdict::Ok(())
    };
    let fed = fed.await;
    stop.store(true, Ordering::Relaxed);
    crew.done(cx).await?;
    fed
}

pub(crate) async fn a_downgrade_grants_waiting_readers(cx: Cx) -> Verdict {
    let (a, b, name) = cx.pair().await?;
    let mut guard = a.rw(&name)?.write().lock().await?;
    let token = guard.token();
    let (rw, mut crew) = (b.rw(&name)?, Crew::new());
    crew.go(async move { Ok(rw.read().lock().await?.release().await.map(|_| ())?) });
    cx.waiters(a.backend(), &name, 1).await?;
    guard.downgrade().await?;
    crew.done(&cx).await?;
    ensure_eq!(guard.check()?, token, "the token after the downgrade");
    ensure!(b.rw(&name)?.write().try_lock().await?.is_none(), "a writer beside a reader");
    guard.release().await?;
    b.rw(&name)?.write().lock().await?.release().await?;
    Ok(())
}

pub(crate) async fn a_downgrade_grants_no_writer_in_between(cx: Cx) -> Verdict {
    let (backend, name) = (cx.backend().await?, cx.name("lock"));
    let [first, second] = [alone(&name), alone(&name)];
    let reader = ask(&name, Mode::Shared);
    let grant = take(&backend, &first).await?;
    queue(&backend, &second).await?;
    queue(&backend, &reader).await?;
    ensure_eq!(downgrade(&backend, &first).await?, Renewed::Kept, "the downgrade");
    let state = backend.inspect(&name).await?;
    let holders: Vec<_> = state.holders.iter().map(|c| (c.claim, c.mode, c.token)).collect();
    ensure_eq!(holders, [(first.claim, Mode::Shared, Some(grant.token))], "the holders");
    ensure_eq!(state.waiters.len(), 2, "the waiters");
    // The claim is a reader from now on, even if it is renewed as one.
    ensure_eq!(downgrade(&backend, &first).await?, Renewed::Kept, "the renewal");
    release(&backend, &first).await?;
    cx.within("the writer is granted", backend.granted(&second)).await??;
    release(&backend, &second).await?;
    cx.within("the reader is granted", backend.granted(&reader)).await??;
    release(&backend, &reader).await
}

pub(crate) async fn a_downgraded_lock_is_still_renewed(cx: Cx) -> Verdict {
    let locks = cx.locks_with(cx.renewing()).await?;
    let (other, name) = (cx.locks().await?, cx.name("lock"));
    let mut guard = locks.rw(&name)?.write().lock().await?;
    guard.downgrade().await?;
    pass(cx.renewed() * 3 / 2).await;
    guard.check()?;
    ensure!(other.rw(&name)?.write().try_lock().await?.is_none(), "a writer beside a reader");
    other.rw(&name)?.read().try_lock().await?.ok_or("renewed as a writer")?.release().await?;
    guard.release().await?;
    Ok(())
}

pub(crate) async fn other_downgrades_are_refused(cx: Cx) -> Verdict {
    let (a, _, name) = cx.pair().await?;
    let mut reader = a.rw(&name)?.read().lock().await?;
    let error = reader.downgrade().await.err().ok_or("a reader was downgraded")?;
    ensure_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    reader.check()?;
    reader.release().await?;
    let mut alone = a.mutex(&name)?.lock().await?;
    let error = alone.downgrade().await.err().ok_or("a mutex became a read")?;
    ensure_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    alone.check()?;
    alone.release().await?;
    Ok(())
}

pub(crate) async fn readers_are_granted_when_the_writer_before_them_cancels(cx: Cx) -> Verdict {
    let (a, b, name) = cx.pair().await?;
    let reader = a.rw(&name)?.read().lock().await?;
    let (rw, mut writer) = (b.rw(&name)?, tokio::task::JoinSet::new());
    writer.spawn(async move { drop(rw.write().lock().await) });
    cx.waiters(a.backend(), &name, 1).await?;
    let (rw, mut crew) = (b.rw(&name)?, Crew::new());
    crew.go(async move { Ok(rw.read().lock().await?.release().await.map(|_| ())?) });
    cx.waiters(a.backend(), &name, 2).await?;
    writer.shutdown().await;
    crew.done(&cx).await?;
    reader.release().await?;
    Ok(())
}

pub(crate) async fn readers_are_granted_after_the_lease_of_a_dead_writer(cx: Cx) -> Verdict {
    let (backend, locks, name) = (cx.backend().await?, cx.locks().await?, cx.name("lock"));
    let (reader, dead) = (ask(&name, Mode::Shared), leased(alone(&name), cx.lease()));
    take(&backend, &reader).await?;
    queue(&backend, &dead).await?;
    locks.rw(&name)?.read().lock().await?.release().await?;
    ensure_eq!(renew(&backend, &reader, reader.lease).await?, Renewed::Kept, "the reader");
    release(&backend, &reader).await
}
