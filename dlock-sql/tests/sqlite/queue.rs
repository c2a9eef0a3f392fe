//! Waiters are granted in order and woken for their grant, and a cancelled claim leaves no trace.

use std::{
    future::Future,
    pin::pin,
    sync::{Arc, Mutex},
    task::Poll,
    time::Duration,
};

use dlock_core::{Clock, DynBackend, Mode};

use crate::support::{LEASE, LONG, Store, ask, exclusive, free, granted, lock, queue, take};

async fn served_in_order(clients: &[DynBackend]) {
    // So long that a waiter sends no heartbeat before its grant, even on a busy machine.
    let lease = 20 * LONG;
    let first = ask("x", Mode::Exclusive, lease);
    take(&clients[0], &first).await;
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = tokio::task::JoinSet::new();
    for n in 0..12 {
        let client = clients[n % clients.len()].clone();
        let request = ask("x", Mode::Exclusive, lease);
        queue(&client, &request).await;
        let order = order.clone();
        tasks.spawn(async move {
            granted(&client, &request).await;
            order.lock().unwrap().push(n);
            free(&client, &request).await;
        });
    }
    let started = Clock::Boot.now();
    free(&clients[0], &first).await;
    tasks.join_all().await;
    // Shorter than the time until the next heartbeat of a waiter.
    assert!(Clock::Boot.now().since(started) < lease / 6);
    assert_eq!(*order.lock().unwrap(), (0..12).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_of_one_process_are_served_in_order() {
    let store = Store::new();
    served_in_order(&[store.open().await]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_of_several_processes_are_served_in_order() {
    let store = Store::new();
    served_in_order(&[store.open().await, store.open().await, store.open().await]).await;
}

#[tokio::test]
async fn a_grant_before_the_wait_begins_is_found() {
    let store = Store::new();
    let (a, b) = (store.open().await, store.open().await);
    let (first, second) = (exclusive("x"), exclusive("x"));
    take(&a, &first).await;
    queue(&b, &second).await;
    free(&a, &first).await;
    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    let once = granted(&b, &second).await;
    // A repeated request gets the same grant.
    assert_eq!(granted(&b, &second).await.token, once.token);
}

#[tokio::test]
async fn a_writer_behind_readers_is_not_overtaken() {
    let store = Store::new();
    let client = store.open().await;
    let (r1, r2) = (ask("x", Mode::Shared, LEASE), ask("x", Mode::Shared, LEASE));
    let (w, r3) = (exclusive("x"), ask("x", Mode::Shared, LEASE));
    take(&client, &r1).await;
    take(&client, &r2).await;
    queue(&client, &w).await;
    queue(&client, &r3).await;
    free(&client, &r1).await;
    free(&client, &r2).await;
    granted(&client, &w).await;
    let state = client.inspect(&w.name).await.unwrap();
    assert_eq!((state.holders.len(), state.waiters.len()), (1, 1));
    free(&client, &w).await;
    granted(&client, &r3).await;
}

#[tokio::test]
async fn one_release_grants_all_readers_at_the_front() {
    let store = Store::new();
    let (a, b) = (store.open().await, store.open().await);
    let w = exclusive("x");
    take(&a, &w).await;
    let readers: Vec<_> = (0..4).map(|_| ask("x", Mode::Shared, LEASE)).collect();
    for (n, reader) in readers.iter().enumerate() {
        queue(if n % 2 == 0 { &a } else { &b }, reader).await;
    }
    free(&a, &w).await;
    for (n, reader) in readers.iter().enumerate() {
        granted(if n % 2 == 0 { &a } else { &b }, reader).await;
    }
}

#[tokio::test]
async fn a_heavy_claim_is_not_overtaken_by_light_ones() {
    let store = Store::new();
    let client = store.open().await;
    let permits = |n| ask("x", Mode::permits(n, 3).unwrap(), LEASE);
    let (two, three, one) = (permits(2), permits(3), permits(1));
    take(&client, &two).await;
    queue(&client, &three).await;
    queue(&client, &one).await;
    free(&client, &two).await;
    granted(&client, &three).await;
    free(&client, &three).await;
    granted(&client, &one).await;
}

/// Polls a future this number of times, and drops it.
async fn polled<T>(future: impl Future<Output = T>, times: usize) -> Option<T> {
    let mut future = pin!(future);
    let mut left = times;
    std::future::poll_fn(|cx| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        future.as_mut().poll(cx).map(Some)
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_dropped_at_any_poll_hands_off_the_lock() {
    let store = Store::new();
    let (a, b) = (store.open().await, store.open().await);
    for n in 0..60 {
        let (held, dropped, next) = (exclusive("x"), exclusive("x"), exclusive("x"));
        take(&a, &held).await;
        queue(&b, &dropped).await;
        queue(&b, &next).await;
        let release = tokio::spawn({
            let (a, held) = (a.clone(), held.clone());
            async move { free(&a, &held).await }
        });
        polled(b.granted(&dropped), n % 5).await;
        if n % 2 == 0 {
            tokio::time::sleep(Duration::from_micros(n as u64 * 37)).await;
        }
        free(&b, &dropped).await;
        release.await.unwrap();
        granted(&b, &next).await;
        free(&b, &next).await;
        assert!(a.inspect(&held.name).await.unwrap().is_free());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waits_dropped_at_random_times_leave_the_lock_free() {
    let store = Store::new();
    let clients = [store.open().await, store.open().await];
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..12u64 {
        let client = clients[usize::from(task % 2 == 0)].clone();
        tasks.spawn(async move {
            for round in 0..25 {
                let request = exclusive("x");
                let wait = Duration::from_micros((task * 977 + round * 613) % 4000);
                let _ = tokio::time::timeout(wait, async {
                    if client.acquire(&request).await.unwrap() == dlock_core::Acquired::Queued {
                        client.granted(&request).await.unwrap();
                    }
                })
                .await;
                client.release(&request.as_claim()).await.unwrap();
            }
        });
    }
    tasks.join_all().await;
    let last = exclusive("x");
    lock(&clients[0], &last).await;
    assert_eq!(clients[1].inspect(&last.name).await.unwrap().holders.len(), 1);
    assert!(clients[1].inspect(&last.name).await.unwrap().waiters.is_empty());
}

#[tokio::test]
async fn reads_and_renewals_dropped_half_way_leave_the_client_usable() {
    let store = Store::new();
    let client = store.open().await;
    let held = exclusive("x");
    take(&client, &held).await;
    let renewal = dlock_core::Renewal::new(held.as_claim(), held.mode, held.lease);
    for n in 0..20 {
        polled(client.inspect(&held.name), n % 3).await;
        polled(client.renew(std::slice::from_ref(&renewal)), n % 3).await;
    }
    assert_eq!(client.inspect(&held.name).await.unwrap().holders.len(), 1);
    free(&client, &held).await;
}
