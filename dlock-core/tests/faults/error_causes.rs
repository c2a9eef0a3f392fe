//! Errors name their cause, and arrive in time.

use std::{error::Error as _, sync::atomic::Ordering, time::Duration};

use dlock_core::*;
use tokio::time::{Instant as Timer, timeout};

use super::{log::Log, store::Store};
use crate::support::{Faulty, millis, secs};

const LEASE: Duration = Duration::from_secs(30);
const HELD_HERE: &str = "waiting for a lock that this process holds";

/// The error of a wait that ended while the store was unreachable.
fn names_the_store(error: &Error) {
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
    assert!(error.to_string().contains("switched off by the test"), "{error}");
    let source = error.source().and_then(|source| source.downcast_ref::<Error>());
    assert_eq!(source.map(Error::kind), Some(ErrorKind::Unavailable), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_timeout_says_that_the_store_failed() {
    let store = Store::new();
    let locks = store.client(LEASE);
    store.becomes_unreachable(millis(100));
    let wait = secs(1);
    let mutex = locks.mutex("a").unwrap();
    // One task sends a request to the store, and the other waits for that task.
    let (leads, waits) = tokio::join!(mutex.lock_timeout(wait), mutex.lock_timeout(wait));
    names_the_store(&leads.unwrap_err());
    names_the_store(&waits.unwrap_err());
    names_the_store(&locks.fair("a").unwrap().lock_timeout(wait).await.unwrap_err());
    names_the_store(&locks.rw("a").unwrap().read().lock_timeout(wait).await.unwrap_err());
    names_the_store(&locks.multi(["a", "b"]).unwrap().lock_timeout(wait).await.unwrap_err());
    let permits = locks.semaphore("a", 1).unwrap();
    names_the_store(&permits.acquire_many_timeout(1, wait).await.unwrap_err());
    let (reentrant, owner) = (locks.reentrant("r").unwrap(), Owner::new());
    let (leads, waits) = tokio::join!(
        reentrant.lock_timeout_as(&owner, wait),
        reentrant.lock_timeout_as(&owner, wait)
    );
    names_the_store(&leads.unwrap_err());
    names_the_store(&waits.unwrap_err());

    // The error of a wait for a busy lock does not blame the store.
    store.comes_back();
    let _held = store.client(LEASE).mutex("a").unwrap().lock().await.unwrap();
    let error = mutex.lock_timeout(wait).await.unwrap_err();
    assert!(error.source().is_none(), "{error}");
    assert!(error.to_string().contains("inspect"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_timeout_quotes_no_failure_of_another_lock() {
    let store = Faulty::new();
    let [one, two] = [(); 2].map(|()| Locks::new(store.clone()).unwrap());
    let _held = two.mutex("busy").unwrap().lock().await.unwrap();
    let busy = one.mutex("busy").unwrap();
    let fails = async {
        tokio::time::sleep(millis(500)).await;
        store.acquire_fails.store(1, Ordering::SeqCst);
        // Its cancellation does not reach the store either.
        store.release_fails.store(true, Ordering::SeqCst);
        one.mutex("other").unwrap().try_lock().await.unwrap_err()
    };
    // One task waits in the store's queue, and the other waits for that task.
    let wait = secs(1);
    let (leads, waits, failed) =
        tokio::join!(busy.lock_timeout(wait), busy.lock_timeout(millis(900)), fails);
    assert_eq!(failed.kind(), ErrorKind::Unavailable);
    for error in [leads.unwrap_err(), waits.unwrap_err()] {
        assert_eq!(error.kind(), ErrorKind::Timeout);
        assert!(error.source().is_none(), "{error}");
        assert!(!error.to_string().contains("switched off"), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_timeout_says_that_the_store_has_not_answered() {
    let store = Store::new();
    let lock = store.client(LEASE).mutex("a").unwrap();
    store.becomes_unreachable(None);
    // One task sends a request to the store, and the other waits for that task.
    let (leads, waits) = tokio::join!(lock.lock_timeout(secs(1)), lock.lock_timeout(secs(1)));
    for error in [leads.unwrap_err(), waits.unwrap_err()] {
        assert_eq!(error.kind(), ErrorKind::Timeout);
        assert!(error.to_string().contains("the store has not answered"), "{error}");
        assert!(error.source().is_some(), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_try_takes_one_response_timeout_at_most() {
    let store = Store::new();
    *store.response_timeout.lock() = secs(2);
    let locks = store.client(LEASE);
    store.becomes_unreachable(None);
    let owner = Owner::new();
    for kind in 0..7 {
        let began = Timer::now();
        let tried = async {
            match kind {
                0 => locks.mutex("a").unwrap().try_lock().await.map(|_| ()),
                1 => locks.fair("a").unwrap().try_lock().await.map(|_| ()),
                2 => locks.multi(["a", "b"]).unwrap().try_lock().await.map(|_| ()),
                3 => locks.semaphore("a", 1).unwrap().try_acquire().await.map(|_| ()),
                4 => locks.reentrant("a").unwrap().try_lock_as(&owner).await.map(|_| ()),
                5 => locks.election("a").unwrap().try_campaign().await.map(|_| ()),
                _ => locks.job("a").unwrap().run(|_| async {}).await.map(|_| ()),
            }
        };
        let error = timeout(LEASE, tried).await.expect("no end of it").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(error.to_string().contains("no answer within 2s"), "{error}");
        assert!(began.elapsed() < secs(3), "{kind}: {:?}", began.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn a_try_of_several_requests_takes_one_response_timeout_at_most() {
    let store = Store::new();
    *store.response_timeout.lock() = secs(2);
    *store.takes.lock() = millis(1900);
    store.one_by_one.store(true, Ordering::SeqCst);
    let locks = store.client(LEASE);
    let both = locks.multi(["a", "b"]).unwrap();
    let began = Timer::now();
    let error = both.try_lock().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("no answer within 2s"), "{error}");
    assert!(began.elapsed() < secs(3), "{:?}", began.elapsed());
    // No claim of it is left.
    tokio::time::sleep(secs(10)).await;
    *store.takes.lock() = Duration::ZERO;
    drop(both.try_lock().await.unwrap().unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_nobody_holds_is_not_busy() {
    let store = Store::new();
    let locks = store.client(LEASE);
    let (mutex, reentrant) = (locks.mutex("a").unwrap(), locks.reentrant("b").unwrap());
    let owner = Owner::new();
    store.becomes_unreachable(millis(100));
    let waits = async { tokio::join!(mutex.lock(), reentrant.lock_as(&owner)) };
    let tries = async {
        tokio::time::sleep(secs(1)).await;
        let mutex = mutex.try_lock().await.unwrap_err();
        (mutex, reentrant.try_lock_as(&owner).await.unwrap_err())
    };
    let (_, (first, second)) = tokio::join!(waits, tries);
    assert_eq!((first.kind(), second.kind()), (ErrorKind::Unavailable, ErrorKind::Unavailable));

    // A lock that this process holds is busy, without a request to the store.
    store.comes_back();
    let _held = mutex.lock().await.unwrap();
    store.becomes_unreachable(None);
    assert!(mutex.try_lock().await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn the_release_of_a_lost_lock_does_not_wait() {
    let store = Store::new();
    let locks = store.client(LEASE);
    let owner = Owner::new();
    let guards = [
        locks.mutex("a").unwrap().lock().await.unwrap(),
        locks.fair("b").unwrap().lock().await.unwrap(),
        locks.multi(["c", "d"]).unwrap().lock().await.unwrap(),
        locks.reentrant("e").unwrap().lock_as(&owner).await.unwrap(),
    ];
    store.becomes_unreachable(None);
    for guard in &guards {
        guard.lost().await;
    }
    let began = Timer::now();
    for guard in guards {
        let released = timeout(LEASE, guard.release()).await.expect("it waits");
        assert_eq!(released.unwrap(), Released::AlreadyLost);
    }
    assert!(began.elapsed().is_zero(), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn health_names_the_cause() {
    let store = Store::new();
    let locks = store.client(LEASE);
    store.becomes_unreachable(secs(5));
    let error = locks.health(secs(2)).await.latency.unwrap_err();
    assert!(error.to_string().contains("no answer within 2s"), "{error}");
    tokio::time::sleep(secs(5)).await;
    let error = locks.health(secs(2)).await.latency.unwrap_err();
    assert!(error.to_string().contains("switched off by the test"), "{error}");
    assert!(error.source().is_some());
    store.comes_back();
    assert!(locks.health(secs(2)).await.is_ready());
    store.becomes_unreachable(None);
    let error = locks.health(secs(2)).await.latency.unwrap_err();
    assert!(!error.to_string().contains("switched off"), "an old error: {error}");
}

#[tokio::test(start_paused = true)]
async fn waiting_for_its_own_lock_is_reported_once() {
    let (log, _guard) = Log::new();
    let locks = Store::new().client(LEASE);
    let mutex = locks.mutex("mutex").unwrap();
    let _held = mutex.lock().await.unwrap();
    let _fair = locks.fair("fair").unwrap().lock().await.unwrap();
    let fair = locks.without_handoff().mutex("fair").unwrap();
    let (again, twice) = tokio::join!(mutex.lock_timeout(LEASE * 5), fair.lock_timeout(LEASE * 5));
    for error in [again.unwrap_err(), twice.unwrap_err()] {
        assert_eq!(error.kind(), ErrorKind::Timeout);
        assert!(error.to_string().contains("this process has held it"), "{error}");
    }
    assert_eq!(log.count(HELD_HERE), 2, "one for each");
    // Many waiters of one holder are one message.
    let _many = locks.fair("many").unwrap().lock().await.unwrap();
    let many = locks.fair("many").unwrap();
    let waits = || many.lock_timeout(LEASE * 2);
    let _ = tokio::join!(waits(), waits(), waits());
    assert_eq!(log.count(HELD_HERE), 3, "one for all");
    // A wait that ends before contains the reason, too, and so does a try.
    for wait in [millis(1), Duration::ZERO] {
        let error = mutex.lock_timeout(wait).await.unwrap_err();
        assert!(error.to_string().contains("this process has held it"), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn waiting_for_permits_is_not_reported_as_its_own_lock() {
    let (log, _guard) = Log::new();
    let store = Store::new();
    let [ours, theirs] = [0, 1].map(|_| store.client(LEASE).semaphore("a", 2).unwrap());
    let _held = (ours.acquire().await.unwrap(), theirs.acquire().await.unwrap());
    let error = ours.acquire_many_timeout(1, LEASE * 3).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert!(!error.to_string().contains("itself"), "{error}");
    assert_eq!(log.count(HELD_HERE), 0);
}

#[tokio::test(start_paused = true)]
async fn waiting_for_another_process_is_not_reported_as_its_own() {
    let (log, _guard) = Log::new();
    let store = Store::new();
    let _held = store.client(LEASE).mutex("a").unwrap().lock().await.unwrap();
    let waits = store.client(LEASE).mutex("a").unwrap().lock_timeout(LEASE * 3).await;
    assert!(!waits.unwrap_err().to_string().contains("itself"));
    assert_eq!(log.count(HELD_HERE), 0);
}
