//! The health of a store, for readiness endpoints.

#![expect(clippy::disallowed_methods, reason = "tests start tasks of their own")]

use std::sync::{Arc, atomic::Ordering};

use crate::support::{Faulty, millis, secs};
use async_trait::async_trait;
use dlock_core::*;

#[tokio::test(start_paused = true)]
async fn it_counts_held_locks_doubtful_locks_and_waiters() {
    let store = Faulty::new();
    let locks = Locks::new(store.clone()).unwrap();
    let health = locks.health(secs(1)).await;
    assert!(health.is_ready());
    assert_eq!((health.held, health.doubtful, health.waiting), (0, 0, 0));

    let guards = [
        locks.mutex("a").unwrap().lock().await.unwrap(),
        locks.fair("b").unwrap().lock().await.unwrap(),
    ];
    let waiting: Vec<_> = ["a", "a", "b"]
        .map(|name| {
            let locks = locks.clone();
            tokio::spawn(async move {
                match name {
                    "a" => locks.mutex(name).unwrap().lock().await,
                    _ => locks.fair(name).unwrap().lock().await,
                }
            })
        })
        .into();
    tokio::time::sleep(millis(5)).await;
    let health = locks.health(secs(1)).await;
    assert_eq!((health.held, health.doubtful, health.waiting), (2, 0, 3));

    store.renew_fails.store(true, Ordering::SeqCst);
    tokio::time::sleep(secs(12)).await;
    let health = locks.health(secs(1)).await;
    assert_eq!((health.held, health.doubtful, health.waiting), (2, 2, 3));
    store.renew_fails.store(false, Ordering::SeqCst);
    for task in &waiting {
        task.abort();
    }
    drop(guards);
    tokio::time::sleep(secs(1)).await;
    let health = locks.health(secs(1)).await;
    assert_eq!((health.held, health.doubtful, health.waiting), (0, 0, 0));

    locks.shutdown(secs(1)).await.unwrap();
    let error = locks.health(secs(1)).await.latency.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config(ConfigIssue::ShutDown));
}

/// A store that never answers `inspect`.
#[derive(Debug)]
pub(crate) struct Silent(pub(crate) Arc<Memory>);

#[async_trait]
impl Backend for Silent {
    fn store(&self) -> &str {
        self.0.store()
    }
    fn guarantees(&self) -> Guarantees {
        self.0.guarantees()
    }
    fn clock(&self) -> Clock {
        self.0.clock()
    }
    fn acquire(&self, request: &AcquireRequest) -> Answer<Acquired> {
        self.0.acquire(request)
    }
    async fn granted(&self, request: &AcquireRequest) -> Result<Grant, Error> {
        self.0.granted(request).await
    }
    async fn renew(&self, renewals: &[Renewal]) -> Result<Vec<Renewed>, Error> {
        self.0.renew(renewals).await
    }
    fn release(&self, claim: &Claim) -> Answer<Released> {
        self.0.release(claim)
    }
    async fn inspect(&self, _: &LockName) -> Result<LockState, Error> {
        std::future::pending().await
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_does_not_answer_is_reported_in_time() {
    let locks = Locks::new(Arc::new(Silent(Memory::with_clock(Clock::tokio())))).unwrap();
    let guard = locks.mutex("a").unwrap().lock().await.unwrap();
    let asked = tokio::time::timeout(secs(3), locks.health(secs(2))).await;
    let health = asked.expect("it is bounded");
    assert!(!health.is_ready());
    let error = health.latency.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("within 2s"), "{error}");
    assert_eq!(health.held, 1);
    drop(guard);
}
