//! An outage of the store while many tasks wait.

use std::{sync::atomic::Ordering::SeqCst, time::Duration};

use dlock_core::*;
use tokio::{task::JoinHandle, time::Instant as Timer};

use super::store::Store;
use crate::support::{millis, secs};

const LEASE: Duration = Duration::from_secs(30);
/// The time after which a request to the unreachable store fails.
const FAILS_AFTER: Duration = Duration::from_secs(5);

type Waits = JoinHandle<(Duration, Result<Guard, Error>)>;

/// The waiting tasks, with the time and the result of each.
fn wait<F>(many: usize, lock: impl Fn() -> F) -> Vec<Waits>
where
    F: Future<Output = Result<Guard, Error>> + Send + 'static,
{
    let began = Timer::now();
    let task = |waits: F| {
        tokio::spawn(async move {
            let ended = waits.await;
            (began.elapsed(), ended)
        })
    };
    (0..many).map(|_| task(lock())).collect()
}

/// All ended with `Unavailable` by then.
async fn ended_by(latest: Duration, waits: Vec<Waits>) {
    for one in waits {
        let (after, ended) = one.await.unwrap();
        assert_eq!(ended.unwrap_err().kind(), ErrorKind::Unavailable);
        assert!(after <= latest, "told after {after:?}, and not {latest:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn all_waiters_get_an_error_one_lease_into_an_outage() {
    let (store, owner) = (Store::new(), Owner::new());
    let locks = store.client(LEASE);
    let mutex = locks.mutex("mutex").unwrap();
    let reentrant = locks.reentrant("reentrant").unwrap();
    let fair = locks.fair("fair").unwrap();
    store.becomes_unreachable(FAILS_AFTER);
    let mut waits = wait(20, || {
        let lock = mutex.clone();
        async move { lock.lock().await }
    });
    waits.extend(wait(20, || {
        let lock = reentrant.clone();
        async move { lock.lock_as(&owner).await }
    }));
    waits.extend(wait(20, || {
        let lock = fair.clone();
        async move { lock.lock().await }
    }));
    ended_by(LEASE + FAILS_AFTER * 3, waits).await;

    // A later task waits for its own lease, and a task that starts after the outage gets the lock.
    let late = wait(3, || {
        let lock = mutex.clone();
        async move { lock.lock().await }
    });
    tokio::time::sleep(LEASE - secs(1)).await;
    assert!(late.iter().all(|task| !task.is_finished()), "given up before a lease was over");
    store.comes_back();
    for one in late {
        drop(one.await.unwrap().1.unwrap());
    }
}

#[tokio::test(start_paused = true)]
async fn a_retry_during_an_outage_waits_for_its_own_lease() {
    let store = Store::new();
    let lock = store.client(LEASE).mutex("n").unwrap();
    store.becomes_unreachable(FAILS_AFTER);
    let waits = wait(5, || {
        let lock = lock.clone();
        async move {
            lock.lock().await.unwrap_err();
            lock.lock().await
        }
    });
    tokio::time::sleep(LEASE * 2 - secs(1)).await;
    assert!(waits.iter().all(|task| !task.is_finished()), "given up before a lease was over");
    ended_by((LEASE + FAILS_AFTER * 3) * 2, waits).await;
}

#[tokio::test(start_paused = true)]
async fn an_outage_goes_on_after_its_local_leader_timed_out() {
    let store = Store::new();
    let lock = store.client(LEASE).mutex("n").unwrap();
    store.becomes_unreachable(FAILS_AFTER);
    // Each local leader has at most this time.
    let mut waits = wait(5, || {
        let lock = lock.clone();
        async move { lock.lock_timeout(LEASE / 3).await }
    });
    waits.extend(wait(5, || {
        let lock = lock.clone();
        async move { lock.lock().await }
    }));
    let patient = waits.split_off(5);
    for one in waits {
        assert_eq!(one.await.unwrap().1.unwrap_err().kind(), ErrorKind::Timeout);
    }
    ended_by(LEASE + FAILS_AFTER * 3, patient).await;
}

#[tokio::test(start_paused = true)]
async fn a_store_that_came_back_meanwhile_has_a_new_outage() {
    let store = Store::new();
    let lock = store.client(LEASE).mutex("n").unwrap();
    let waiting = |many| {
        wait(many, || {
            let lock = lock.clone();
            async move { lock.lock().await }
        })
    };
    store.becomes_unreachable(FAILS_AFTER);
    let first = waiting(1);
    tokio::time::sleep(LEASE / 2).await;
    store.comes_back();
    let guard = first.into_iter().next().unwrap().await.unwrap().1.unwrap();
    let next = waiting(3);
    tokio::time::sleep(millis(1)).await;
    store.becomes_unreachable(FAILS_AFTER);
    drop(guard);
    tokio::time::sleep(LEASE - secs(1)).await;
    assert!(next.iter().all(|task| !task.is_finished()), "given up before a lease was over");
    ended_by(LEASE + FAILS_AFTER * 3, next).await;
}

/// The claim is in the store's queue. Then the connection breaks, and no new one is possible.
#[tokio::test(start_paused = true)]
async fn a_wait_that_ends_in_an_outage_leaves_the_queue() {
    let store = Store::new();
    let [holder, waiter, next] = [0; 3].map(|_| store.client(secs(60)));
    let guard = holder.mutex("a").unwrap().lock().await.unwrap();
    let mutex = waiter.mutex("a").unwrap();
    let waiting = mutex.lock_timeout(secs(5));
    let outage = async {
        tokio::time::sleep(secs(1)).await;
        store.refuses.store(true, SeqCst);
        store.becomes_unreachable(millis(10));
    };
    let (waited, ()) = tokio::join!(waiting, outage);
    assert_eq!(waited.unwrap_err().kind(), ErrorKind::Timeout);
    store.comes_back();
    // The claim is cancelled meanwhile.
    tokio::time::sleep(secs(10)).await;
    assert!(guard.release().await.is_ok());
    let taken = next.mutex("a").unwrap().lock_timeout(secs(1)).await;
    assert!(taken.is_ok(), "the lock was granted to a claim that nobody waits for");
}
