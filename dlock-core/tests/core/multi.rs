//! Multi-locks over several stores: progress under contention, outages, and lost parts.

#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "helpers of the tests start tasks and create locks"
)]

use std::{
    error::Error as _,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use crate::support::{Faulty, millis, secs};
use dlock_core::*;
use tokio::{
    task::JoinSet,
    time::{Instant, sleep, timeout},
};

fn paused() -> Arc<Memory> {
    Memory::with_clock(Clock::tokio())
}

fn locks(store: &Arc<Memory>) -> Locks {
    Locks::new(store.clone()).unwrap()
}

/// Two stores with the addresses `one` and `two`, in this order.
fn two_stores() -> [Arc<Faulty>; 2] {
    ["one", "two"].map(|address| Faulty::known_as(address, paused()))
}

/// Locks the name `n` in each of these stores.
fn across(stores: [&Arc<Faulty>; 2], options: [LockOptions; 2]) -> MultiMutex {
    let stores = stores.into_iter().zip(options);
    let lock = |(store, options): (&Arc<Faulty>, _)| {
        Locks::new(store.clone()).unwrap().with_options(options).unwrap().mutex("n").unwrap()
    };
    MultiMutex::across(stores.map(lock)).unwrap()
}

/// Acquires and releases this lock again and again, and counts.
async fn use_often(lock: impl Lock, held: Duration, count: Arc<AtomicU32>) {
    loop {
        let guard = lock.lock().await.unwrap();
        sleep(held).await;
        guard.release().await.unwrap();
        count.fetch_add(1, Ordering::SeqCst);
    }
}

/// The queues of the names are never empty.
#[tokio::test(start_paused = true)]
async fn single_locks_do_not_starve_a_multi_lock() {
    for held in [millis(10), millis(300)] {
        let stores = [paused(), paused()];
        let mut others = JoinSet::new();
        for (store, name) in [(0, "a"), (0, "b"), (1, "c")] {
            for _ in 0..3 {
                let lock = locks(&stores[store]).mutex(name).unwrap();
                others.spawn(use_often(lock, held, Arc::default()));
            }
        }
        let [one, two] = stores.each_ref().map(locks);
        for _ in 0..10 {
            let parts = [two.mutex("c"), one.mutex("b"), one.mutex("a")].map(Result::unwrap);
            let guard = MultiMutex::across(parts).unwrap().lock_timeout(secs(60)).await.unwrap();
            sleep(millis(5)).await;
            guard.release().await.unwrap();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn multi_locks_in_all_orders_get_equal_shares() {
    let stores = [paused(), paused(), paused()];
    let (mut clients, mut counts) = (JoinSet::new(), Vec::new());
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let locks = order.map(|store| locks(&stores[store]).mutex("n").unwrap());
        let count = Arc::<AtomicU32>::default();
        counts.push(Arc::clone(&count));
        clients.spawn(use_often(MultiMutex::across(locks).unwrap(), millis(5), count));
    }
    sleep(secs(60)).await;
    let counts: Vec<_> = counts.iter().map(|count| count.load(Ordering::SeqCst)).collect();
    // Together they could hold the locks 12,000 times.
    assert!(counts.iter().all(|count| *count > 1000), "{counts:?}");
}

#[tokio::test(start_paused = true)]
async fn stores_with_two_addresses_cause_no_deadlock() {
    let [one, two] = [paused(), paused()];
    let mut programs = JoinSet::new();
    for addresses in [["one", "two"], ["two", "one"]] {
        let stores = [(addresses[0], &one), (addresses[1], &two)];
        let [one, two] = stores.map(|(address, store)| {
            let store = Faulty::known_as(address, Arc::clone(store));
            store.slow.store(true, Ordering::SeqCst);
            store
        });
        programs.spawn(async move {
            let both = across([&one, &two], [LockOptions::new(); 2]);
            for _ in 0..20 {
                both.lock_timeout(secs(600)).await.unwrap().release().await.unwrap();
            }
        });
    }
    while let Some(ended) = programs.join_next().await {
        ended.unwrap();
    }
}

/// One client enters the queues of both names at once, as the others do.
#[tokio::test(start_paused = true)]
async fn two_clients_of_one_backend_act_as_one() {
    let store = paused();
    let mut others = JoinSet::new();
    for _ in 0..3 {
        let both = locks(&store).multi(["a", "b"]).unwrap();
        others.spawn(use_often(both, millis(10), Arc::default()));
    }
    for _ in 0..10 {
        let parts = ["a", "b"].map(|name| locks(&store).mutex(name).unwrap());
        let both = MultiMutex::across(parts).unwrap();
        both.lock_timeout(secs(1)).await.unwrap().release().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn an_outage_of_a_later_store_frees_the_earlier_one() {
    let [one, two] = two_stores();
    two.acquire_fails.store(usize::MAX, Ordering::SeqCst);
    let options = LockOptions::new().with_lease(secs(5));
    let (both, began) = (across([&one, &two], [options; 2]), Instant::now());
    let waiting = tokio::spawn(async move { both.lock().await });
    let single = Locks::new(one.clone()).unwrap().fair("n").unwrap();
    sleep(millis(10)).await;
    assert!(single.try_lock().await.unwrap().is_none());
    timeout(secs(1), single.lock()).await.unwrap().unwrap().release().await.unwrap();
    let error = waiting.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert_eq!(error.store(), Some("two"), "{error}");
    assert!((secs(5)..secs(15)).contains(&began.elapsed()), "{:?}", began.elapsed());
    single.try_lock().await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_wait_for_several_stores_ends_with_the_cause() {
    for fails in [false, true] {
        let [one, two] = two_stores();
        let other = Locks::new(two.clone()).unwrap().mutex("n").unwrap().lock().await.unwrap();
        if fails {
            two.acquire_fails.store(usize::MAX, Ordering::SeqCst);
        }
        let both = across([&one, &two], [LockOptions::new(); 2]);
        let (began, wait) = (Instant::now(), secs(7));
        let error = both.lock_timeout(wait).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
        assert_eq!(error.store(), Some("two"), "{error}");
        assert_eq!(error.source().is_some(), fails, "{error}");
        assert!((wait..secs(8)).contains(&began.elapsed()), "{:?}", began.elapsed());
        drop(other);
        let first = Locks::new(one.clone()).unwrap().mutex("n").unwrap();
        first.lock_timeout(secs(1)).await.unwrap().release().await.unwrap();
    }
}

/// No guard exists yet, so no loss is reported.
#[tokio::test(start_paused = true)]
async fn a_part_lost_before_the_last_grant_is_unavailable() {
    let [one, two] = two_stores();
    two.answer_takes.store(700, Ordering::SeqCst);
    let short = LockOptions::new().with_lease(millis(500)).with_renew(Renew::Never);
    let error = across([&one, &two], [short, LockOptions::new()]).try_lock().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("was lost before"), "{error}");
}

/// Each attempt of the multi-lock over both connections blocks the others.
#[tokio::test(start_paused = true)]
async fn two_connections_to_a_store_block_others_briefly() {
    let (store, count) = (paused(), Arc::<AtomicU32>::default());
    let mut tasks = JoinSet::new();
    for _ in 0..3 {
        let both = locks(&store).multi(["a", "b"]).unwrap();
        tasks.spawn(use_often(both, millis(10), Arc::clone(&count)));
    }
    let parts = ["a", "b"].map(|name| {
        let connection = TokenOffset::new(store.clone(), 0).unwrap();
        Locks::new(connection).unwrap().mutex(name).unwrap()
    });
    let both = MultiMutex::across(parts).unwrap();
    tasks.spawn(use_often(both, Duration::ZERO, Arc::default()));
    sleep(secs(60)).await;
    let count = count.load(Ordering::SeqCst);
    assert!(count > 800, "{count}");
}
