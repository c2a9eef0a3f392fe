//! Many operations in few statements.

use dlock_core::{
    AcquireRequest, Acquired, ConfigIssue, DynBackend, ErrorKind, Mode, Renewal, Renewed,
};

use crate::support::{LEASE, Store, ask, exclusive, free, granted, name, queue, take};

async fn all(
    client: &DynBackend,
    requests: &[AcquireRequest],
) -> Result<Vec<Acquired>, dlock_core::Error> {
    client.acquire_all(requests).expect("supported").await
}

#[tokio::test]
async fn several_locks_are_taken_at_once_and_answered_in_order() {
    let store = Store::new();
    let (a, b) = (store.open().await, store.open().await);
    let held = exclusive("b");
    take(&a, &held).await;
    let requests = ["c", "b", "a"].map(exclusive);
    let answers = all(&b, &requests).await.unwrap();
    assert!(matches!(answers[..], [Acquired::Granted(_), Acquired::Queued, Acquired::Granted(_)]));
    free(&a, &held).await;
    granted(&b, &requests[1]).await;
    assert!(all(&b, &[]).await.unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn multi_locks_in_opposite_orders_do_not_deadlock() {
    let store = Store::new();
    let clients = [store.open().await, store.open().await];
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..8 {
        let client = clients[task % 2].clone();
        tasks.spawn(async move {
            for _ in 0..20 {
                let mut names = ["a", "b", "c"];
                names.rotate_left(task % 3);
                let requests = names.map(exclusive);
                let answers = all(&client, &requests).await.unwrap();
                for (request, answer) in requests.iter().zip(answers) {
                    if answer == Acquired::Queued {
                        granted(&client, request).await;
                    }
                }
                for request in &requests {
                    free(&client, request).await;
                }
            }
        });
    }
    tasks.join_all().await;
}

#[tokio::test]
async fn an_invalid_request_takes_none_of_a_multi_lock() {
    let store = Store::new();
    let client = store.open().await;
    let held = ask("b", Mode::permits(1, 3).unwrap(), LEASE);
    take(&client, &held).await;
    let error = all(&client, &["a", "b", "c"].map(exclusive)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config(ConfigIssue::Capacity));
    assert_eq!(error.lock(), Some(&name("b")));
    for free in ["a", "c"] {
        assert!(client.inspect(&name(free)).await.unwrap().is_free());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_callers_at_once_each_get_their_own_answer() {
    let store = Store::new();
    let client = store.open().await;
    let mut tasks = tokio::task::JoinSet::new();
    for n in 0..300 {
        let client = client.clone();
        tasks.spawn(async move {
            let request = exclusive(&format!("{n}"));
            take(&client, &request).await;
            free(&client, &request).await;
        });
    }
    tasks.join_all().await;
}

#[tokio::test]
async fn a_thousand_renewals_are_answered_in_order() {
    let store = Store::new();
    let client = store.open().await;
    let mut requests = Vec::new();
    for n in 0..1000 {
        // Several claims share a name.
        requests.push(ask(&format!("{}", n % 400), Mode::Shared, LEASE));
    }
    for part in requests.chunks(400) {
        all(&client, part).await.unwrap();
    }
    let lost: Vec<usize> = (0..1000).filter(|n| n % 7 == 0).collect();
    for &at in &lost {
        free(&client, &requests[at]).await;
    }
    let renewals: Vec<_> = requests
        .iter()
        .map(|request| Renewal::new(request.as_claim(), Mode::Shared, LEASE))
        .collect();
    let renewed = client.renew(&renewals).await.unwrap();
    for (at, answer) in renewed.into_iter().enumerate() {
        let expected = if at % 7 == 0 { Renewed::Lost } else { Renewed::Kept };
        assert_eq!(answer, expected, "{at}");
    }
}

#[tokio::test]
async fn a_batch_grants_to_waiters() {
    let store = Store::new();
    let (a, b) = (store.open().await, store.open().await);
    let held = ["x", "y"].map(exclusive);
    all(&a, &held).await.unwrap();
    let waiting = ["x", "y"].map(exclusive);
    for request in &waiting {
        queue(&b, request).await;
    }
    tokio::join!(free(&a, &held[0]), free(&a, &held[1]));
    tokio::join!(granted(&b, &waiting[0]), granted(&b, &waiting[1]));
}
