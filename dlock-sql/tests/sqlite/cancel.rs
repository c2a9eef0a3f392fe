//! A cancelled wait leaves nothing behind.

use std::{future::Future, pin::pin, task::Poll, time::Duration};

use crate::support::{Store, exclusive, free, granted, lock, queue, take};

/// Polls a future so many times and drops it.
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
