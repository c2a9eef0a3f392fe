//! Cleanup after failures and dropped futures: no claim, guard or memory remains.

#![expect(clippy::disallowed_methods, reason = "tests start tasks of their own")]

use std::sync::{Arc, atomic::Ordering};

use crate::support::{Fault, Faulty, millis, secs};
use dlock_core::*;

fn paused() -> Arc<Memory> {
    Memory::with_clock(Clock::tokio())
}

/// Two clients of one store, the second of which holds "a" and "b".
async fn held_by_another(store: &Arc<Memory>) -> (Locks, Guard, Guard) {
    let (us, other) = (
        Locks::new(store.clone()).expect("a free lock"),
        Locks::new(store.clone()).expect("a free lock"),
    );
    let a = other.fair("a").expect("a free lock").lock().await.expect("a free lock");
    let b = other.fair("b").expect("a free lock").lock().await.expect("a free lock");
    (us, a, b)
}

#[tokio::test(start_paused = true)]
async fn a_multi_lock_that_gives_up_releases_its_locks() {
    for cancel in [false, true] {
        let store = paused();
        let (us, a, b) = held_by_another(&store).await;
        let multi = us.multi(["a", "b"]).unwrap();
        let waiting = tokio::spawn(async move { multi.lock_timeout(millis(1000)).await });
        tokio::time::sleep(millis(10)).await;
        // The multi-lock is granted "a", and continues to wait for "b".
        a.release().await.unwrap();
        tokio::time::sleep(millis(10)).await;
        if cancel {
            waiting.abort();
        } else {
            assert_eq!(waiting.await.unwrap().unwrap_err().kind(), ErrorKind::Timeout);
        }
        drop(b);
        tokio::time::sleep(millis(100)).await;
        assert!(us.inspect("a").await.unwrap().is_free());
        assert!(us.inspect("b").await.unwrap().is_free());
    }
}

/// No guard exists yet, so no loss is reported.
#[tokio::test(start_paused = true)]
async fn a_try_answered_after_its_lease_is_unavailable() {
    let store = Faulty::new();
    store.answer_takes.store(700, Ordering::SeqCst);
    let options = LockOptions::new().with_lease(millis(500));
    let locks = Locks::new(store.clone()).unwrap().with_options(options).unwrap();
    for names in [&["a"][..], &["a", "b"]] {
        let error = locks.multi(names.iter().copied()).unwrap().try_lock().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    }
    let error = locks.mutex("a").unwrap().try_lock().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_multi_lock_over_stores_does_not_deadlock_with_one_within() {
    let store = Faulty::new();
    let slow = Locks::new(store.clone()).unwrap();
    let within = Locks::new(store.inner.clone()).unwrap();
    let elsewhere = Locks::new(paused()).unwrap();
    store.slow.store(true, Ordering::SeqCst);
    let locks = [slow.mutex("a").unwrap(), slow.mutex("b").unwrap(), elsewhere.mutex("x").unwrap()];
    let across = MultiMutex::across(locks).unwrap();
    let within = within.multi(["a", "b"]).unwrap();
    let across = tokio::spawn(async move { across.lock_timeout(secs(3600)).await.map(drop) });
    tokio::time::sleep(millis(8)).await;
    let within = tokio::spawn(async move { within.lock_timeout(secs(3600)).await.map(drop) });
    within.await.unwrap().unwrap();
    across.await.unwrap().unwrap();
}

#[tokio::test]
async fn locks_of_one_name_below_two_prefixes_are_two() {
    let store: DynBackend = Memory::new();
    let below = |prefix| {
        Locks::new(Prefixed::new(Arc::clone(&store), prefix).unwrap()).unwrap().mutex("x").unwrap()
    };
    let (a, b) = (below("a/"), below("b/"));
    let _both = MultiMutex::across([a.clone(), b.clone()]).unwrap().lock().await.unwrap();
    assert!(a.try_lock().await.unwrap().is_none());
    assert!(b.try_lock().await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_claim_with_a_lost_reply_is_released_after_later_failures() {
    let store = Faulty::new();
    let locks = Locks::new(store.clone()).unwrap();
    store.script.lock().push_back(Fault::AnswerLost);
    store.script.lock().extend([Fault::NotSent; 8]);
    let lock = locks.mutex("n").unwrap();
    assert!(tokio::time::timeout(millis(100), lock.lock()).await.is_err());
    tokio::time::sleep(secs(1)).await;
    assert!(locks.inspect("n").await.unwrap().is_free());
}

/// The store's clock was ahead when it granted the lease, so the lease ends later there than here.
#[tokio::test(start_paused = true)]
async fn a_lock_that_outlives_its_lease_in_the_store_is_released() {
    for dropped in [true, false] {
        let store = Faulty::new();
        store.leases_last.store(120, Ordering::SeqCst);
        let options = LockOptions::new().with_lease(millis(500)).with_renew(Renew::Never);
        let locks = Locks::new(store.clone()).unwrap().with_options(options).unwrap();
        let guard = locks.mutex("n").unwrap().lock().await.unwrap();
        store.release_fails.store(true, Ordering::SeqCst);
        if dropped {
            drop(guard);
            tokio::time::sleep(secs(10)).await;
        } else {
            let error = guard.release().await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
            tokio::time::sleep(secs(9)).await;
        }
        assert!(!locks.inspect("n").await.unwrap().is_free());
        store.release_fails.store(false, Ordering::SeqCst);
        tokio::time::sleep(secs(2)).await;
        assert!(locks.inspect("n").await.unwrap().is_free());
        locks.shutdown(millis(1)).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn an_earlier_outage_does_not_shorten_the_retry_budget() {
    let store = Faulty::new();
    let locks = Locks::new(store.clone()).unwrap();
    let other = Locks::new(store.inner.clone()).unwrap();
    let held = other.mutex("n").unwrap().lock().await.unwrap();
    store.granted_fails.lock().extend([10, 600_000]);
    let lock = locks.mutex("n").unwrap();
    let waiting = tokio::spawn(async move { lock.lock().await.map(drop) });
    tokio::time::sleep(secs(700)).await;
    drop(held);
    waiting.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn shutdown_waits_for_a_release_in_another_task() {
    let store = Faulty::new();
    store.slow.store(true, Ordering::SeqCst);
    let locks = Locks::new(store.clone()).unwrap();
    let guard = locks.mutex("n").unwrap().lock().await.unwrap();
    let release = tokio::spawn(guard.release());
    tokio::task::yield_now().await;
    locks.shutdown(secs(5)).await.unwrap();
    assert!(locks.inspect("n").await.unwrap().is_free());
    release.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn shutdown_ends_waits() {
    let store = paused();
    let (us, a, _b) = held_by_another(&store).await;
    let lock = us.mutex("a").unwrap();
    let waiting = tokio::spawn(async move { lock.lock().await });
    tokio::time::sleep(millis(10)).await;
    us.shutdown(secs(5)).await.unwrap();
    let error = waiting.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config(ConfigIssue::ShutDown));
    drop(a);
    assert!(us.inspect("a").await.unwrap().is_free());
}

#[tokio::test(start_paused = true)]
async fn lost_resolves_when_the_guard_is_handed_off() {
    let locks = Locks::new(paused()).unwrap();
    let lock = locks.mutex("n").unwrap();
    let first = lock.lock().await.unwrap();
    let ended = first.lost();
    let next = {
        let lock = lock.clone();
        tokio::spawn(async move { lock.lock().await.unwrap() })
    };
    tokio::task::yield_now().await;
    first.release().await.unwrap();
    let next = next.await.unwrap();
    assert_eq!(tokio::time::timeout(secs(1), ended).await.unwrap(), Ended::Released);
    assert!(next.check().is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_renewal_under_way_does_not_reach_the_next_grant() {
    let store = Faulty::new();
    // The last renewal before the limit requests only 300 ms.
    let options = LockOptions::new().with_lease(secs(3)).with_renew(Renew::For(millis(3300)));
    let locks = Locks::new(store.clone()).unwrap().with_options(options).unwrap();
    let other = Locks::new(store.inner.clone()).unwrap();
    let (lock, theirs) = (locks.mutex("n").unwrap(), other.mutex("n").unwrap());
    let first = lock.lock().await.unwrap();
    tokio::time::sleep(millis(2600)).await;
    store.renew_takes.store(500, Ordering::SeqCst);
    tokio::time::sleep(millis(470)).await;
    first.release().await.unwrap();
    let second = lock.lock().await.unwrap();
    for _ in 0..250 {
        tokio::time::sleep(millis(10)).await;
        if theirs.try_lock().await.unwrap().is_some() {
            assert!(second.check().is_err(), "two hold the lock");
            return;
        }
    }
}

#[test]
fn a_backend_ends_with_the_runtime_of_its_locks() {
    let store = Memory::new();
    for _ in 0..3 {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let locks = Locks::new(store.clone()).unwrap();
            locks.mutex("n").unwrap().lock().await.unwrap().release().await.unwrap();
        });
    }
    assert_eq!(Arc::strong_count(&store), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_owner_finds_its_lock_beside_its_other_tasks() {
    let locks = Locks::new(Memory::new()).unwrap();
    let me = Owner::new();
    // The handle that created the guard was dropped.
    let _held = locks.reentrant("n").unwrap().lock_as(&me).await.unwrap();
    assert_eq!(locks.reentrant("n").unwrap().hold_count(&me), 1);
    let mut tasks = Vec::new();
    for _ in 0..2 {
        let lock = locks.reentrant("n").unwrap();
        tasks.push(tokio::spawn(async move {
            for _ in 0..20_000 {
                assert!(lock.try_lock_as(&me).await.unwrap().is_some());
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn retries_of_a_slowly_failing_store_end() {
    for names in [vec!["n"], vec!["a", "b"]] {
        let store = Faulty::new();
        let options = LockOptions::new().with_lease(millis(200));
        let locks = Locks::new(store.clone()).unwrap().with_options(options).unwrap();
        let other = Locks::new(store.inner.clone()).unwrap();
        let mut held = Vec::new();
        for name in &names {
            held.push(other.mutex(*name).unwrap().lock().await.unwrap());
        }
        // Each wait in the queue takes longer than a lease to fail.
        store.granted_fails.lock().extend([300; 1000]);
        store.acquire_fails.store(usize::MAX, Ordering::SeqCst);
        let start = tokio::time::Instant::now();
        let error = locks.multi(names).unwrap().lock().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(start.elapsed() < secs(5), "{:?}", start.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn a_try_on_a_store_slower_than_the_lease_ends() {
    let store = Faulty::new();
    let options = LockOptions::new().with_lease(millis(100));
    let locks = Locks::new(store.clone()).unwrap().with_options(options).unwrap();
    store.answer_takes.store(150, Ordering::SeqCst);
    let error = locks.mutex("n").unwrap().try_lock().await.unwrap_err();
    assert!(error.to_string().contains("use a longer lease"), "{error}");
    tokio::time::sleep(secs(1)).await;
    assert!(locks.inspect("n").await.unwrap().is_free());
}

#[tokio::test(start_paused = true)]
async fn a_multi_lock_releases_no_longer_than_it_waits() {
    let store = paused();
    let (us, _a, b) = held_by_another(&store).await;
    b.release().await.unwrap();
    let start = tokio::time::Instant::now();
    let error = us.multi(["a", "b"]).unwrap().lock_timeout(millis(200)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert!(start.elapsed() < millis(300), "{:?}", start.elapsed());
    assert!(us.inspect("b").await.unwrap().is_free());
}

#[test]
fn a_runtime_without_timers_is_refused() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let error = runtime.block_on(async { Locks::new(Memory::new()).unwrap_err() });
    assert_eq!(error.kind(), ErrorKind::Config(ConfigIssue::Runtime));
    assert!(error.to_string().contains("enable_time"), "{error}");
}
