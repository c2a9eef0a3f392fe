//! Faults of the file and of the runtime.

use std::{
    pin::pin,
    task::{Context, Poll, Waker},
    time::Duration,
};

use dlock_core::{Certainty, ConfigIssue, ErrorKind, Locks};
use dlock_sql::Sqlite;

use crate::support::{LONG, Store, exclusive, free, lock, take};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_briefly_locked_file_is_awaited() {
    let store = Store::new();
    let client = store.open().await;
    let mut other = store.raw().await;
    sqlx::raw_sql("BEGIN IMMEDIATE").execute(&mut other).await.unwrap();
    let held = exclusive("x");
    let taking = tokio::spawn({
        let (client, held) = (client.clone(), held.clone());
        async move { lock(&client, &held).await }
    });
    tokio::time::sleep(Duration::from_millis(100)).await;
    // A read does not wait for a writer.
    assert!(client.inspect(&held.name).await.unwrap().is_free());
    sqlx::raw_sql("ROLLBACK").execute(&mut other).await.unwrap();
    taking.await.unwrap();
}

#[tokio::test]
async fn a_file_that_stays_locked_is_unavailable_and_unchanged() {
    let store = Store::new();
    let config = store.config().with_busy_timeout(Duration::from_millis(80));
    let client = Sqlite::open(config.clone()).await.unwrap();
    let mut other = store.raw().await;
    sqlx::raw_sql("BEGIN IMMEDIATE").execute(&mut other).await.unwrap();
    let request = exclusive("x");
    let error = client.acquire(&request).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert_eq!(error.certainty(), Certainty::NotApplied);
    assert!(error.is_transient());
    assert!(std::error::Error::source(&error).is_some());
    assert_eq!(Sqlite::open(config).await.unwrap_err().kind(), ErrorKind::Unavailable);
    sqlx::raw_sql("ROLLBACK").execute(&mut other).await.unwrap();
    take(&client, &request).await;
}

/// The worker waits for the file, so other acquires wait for the worker.
#[tokio::test]
async fn an_acquire_whose_caller_has_gone_writes_nothing() {
    let store = Store::new();
    let client = Sqlite::open(store.config().with_busy_timeout(LONG)).await.unwrap();
    let locks = Locks::new(client).unwrap();
    let [a, b, c] = ["a", "b", "c"].map(|name| locks.mutex(name).unwrap());
    let mut other = store.raw().await;
    sqlx::raw_sql("BEGIN IMMEDIATE").execute(&mut other).await.unwrap();
    let first = tokio::spawn(async move { a.lock().await });
    tokio::time::sleep(Duration::from_millis(100)).await;
    {
        let mut dropped = pin!(b.lock());
        let polled = dropped.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(polled.is_pending());
    }
    sqlx::raw_sql("ROLLBACK").execute(&mut other).await.unwrap();
    let _held = [first.await.unwrap().unwrap(), c.lock().await.unwrap()];
    // The row of a lock that was released would still be there.
    let names: Vec<_> = store.rows().await.into_iter().map(|(name, ..)| name).collect();
    assert_eq!(names, ["a", "c"]);
}

#[tokio::test]
async fn a_missing_table_is_reported_and_its_return_is_noticed() {
    let store = Store::new();
    let client = store.open().await;
    let mut other = store.raw().await;
    sqlx::raw_sql("ALTER TABLE dlock_lock RENAME TO away").execute(&mut other).await.unwrap();
    let error = client.acquire(&exclusive("x")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config(ConfigIssue::SchemaMissing));
    assert!(client.inspect(&crate::support::name("x")).await.is_err());
    sqlx::raw_sql("ALTER TABLE away RENAME TO dlock_lock").execute(&mut other).await.unwrap();
    let request = exclusive("x");
    take(&client, &request).await;
    free(&client, &request).await;
}

#[test]
fn opening_outside_a_runtime_is_an_error() {
    let store = Store::new();
    let mut opening = pin!(Sqlite::open(store.config()));
    let Poll::Ready(result) = opening.as_mut().poll(&mut Context::from_waker(Waker::noop())) else {
        panic!("it waits")
    };
    let error = result.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config(ConfigIssue::Runtime));
    assert!(error.to_string().contains("runtime"), "{error}");
}

#[test]
fn an_ended_runtime_is_reported() {
    let store = Store::new();
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let client = runtime().block_on(store.open());
    runtime().block_on(async {
        let error = client.acquire(&exclusive("x")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config(ConfigIssue::Runtime));
        let error = client.inspect(&crate::support::name("x")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config(ConfigIssue::Runtime));
    });
}

#[tokio::test]
async fn a_release_under_way_completes_after_the_client_is_dropped() {
    let store = Store::new();
    let (a, b) = (store.open().await, store.open().await);
    let held = exclusive("x");
    take(&a, &held).await;
    let releasing = a.release(&held.as_claim());
    drop(a);
    releasing.await.unwrap();
    take(&b, &exclusive("x")).await;
}
