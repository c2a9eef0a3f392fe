//! A job runs once in a fleet, and its lock outlives it.

#![expect(clippy::disallowed_methods, reason = "tests start tasks of their own")]

use std::{
    sync::{Arc, atomic::Ordering},
    task::{Context, Waker},
};

use crate::support::{Faulty, millis, secs};
use dlock_core::*;

const ONE_LEASE: u64 = 30;

/// The job of a machine, and its locks.
fn machine(store: &Arc<Faulty>, at_least: u64) -> (Locks, Job) {
    let locks = Locks::new(store.clone()).expect("a store that takes it");
    let job = locks
        .job("nightly")
        .expect("a store that takes it")
        .with_at_least(secs(at_least))
        .expect("a store that takes it");
    (locks, job)
}

/// Whether the job runs on a machine now. It keeps no minimum time itself.
async fn runs(store: &Arc<Faulty>) -> bool {
    let (_, job) = machine(store, 0);
    job.run(|_| async {}).await.expect("a store that takes it").done().is_some()
}

/// Returns the number of seconds after which the lock is free, or `most` if it stays held.
async fn first_free(store: &Arc<Faulty>, most: u64) -> u64 {
    for second in 0..most {
        if runs(store).await {
            return second;
        }
        tokio::time::sleep(secs(1)).await;
    }
    most
}

#[tokio::test(start_paused = true)]
async fn while_it_runs_it_runs_nowhere_else() {
    let store = Faulty::new();
    let (_locks, job) = machine(&store, 0);
    let outcome = job
        .run(|token| {
            let store = Arc::clone(&store);
            async move {
                tokio::time::sleep(secs(100)).await;
                assert!(!runs(&store).await);
                token
            }
        })
        .await
        .unwrap();
    assert!(matches!(outcome, Ran::Done(_)));
    assert!(runs(&store).await, "without a minimum time it is free at once");
}

#[tokio::test(start_paused = true)]
async fn the_lock_is_held_for_the_minimum_time_from_the_start() {
    // A minimum time shorter and longer than a lease, and the remaining time.
    for (at_least, takes) in [(10, 4), (300, 4), (300, 290), (40, 35)] {
        let store = Faulty::new();
        let (locks, job) = machine(&store, at_least);
        let ran = job.run(|_| tokio::time::sleep(secs(takes))).await.unwrap();
        assert_eq!(ran, Ran::Done(()));
        // Nothing remains to be done: the process may end.
        locks.shutdown(millis(1)).await.unwrap();
        drop((locks, job));
        let free = first_free(&store, 400).await;
        let left = at_least - takes;
        assert!((left..=left + 1).contains(&free), "{at_least} s: free {free} s after {takes} s");
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_that_took_longer_is_free_at_once() {
    let store = Faulty::new();
    let (_locks, job) = machine(&store, 10);
    let _ = job.run(|_| tokio::time::sleep(secs(20))).await.unwrap();
    tokio::time::sleep(millis(110)).await;
    assert!(runs(&store).await);
}

#[tokio::test(start_paused = true)]
async fn a_job_that_is_dropped_or_panics_holds_its_lock_on() {
    for panics in [false, true] {
        let store = Faulty::new();
        let (locks, job) = machine(&store, 100);
        let running = tokio::spawn(async move {
            job.run(|_| async move {
                tokio::time::sleep(secs(20)).await;
                assert!(!panics, "on purpose");
                std::future::pending::<()>().await;
            })
            .await
        });
        tokio::time::sleep(secs(21)).await;
        running.abort();
        assert!(running.await.is_err());
        locks.shutdown(secs(1)).await.unwrap();
        let free = first_free(&store, 400).await;
        assert!((78..=80).contains(&free), "free after {free} s");
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_that_failed_is_released_on_request() {
    let store = Faulty::new();
    let (_locks, job) = machine(&store, 100);
    let failed = job.run_or_release(|_| async { Err::<(), _>("no disk") }).await.unwrap();
    assert_eq!(failed, Ran::Done(Err("no disk")));
    let done = job.run_or_release(|_| async { Ok::<_, &str>(1) }).await.unwrap();
    assert_eq!(done, Ran::Done(Ok(1)), "the failure left it free");
    assert!(!runs(&store).await, "the success keeps it");

    let store = Faulty::new();
    let (_locks, job) = machine(&store, 100);
    let hangs = job.run_or_release(|_| std::future::pending::<Result<(), ()>>());
    assert!(tokio::time::timeout(secs(1), hangs).await.is_err());
    tokio::time::sleep(millis(10)).await;
    assert!(runs(&store).await, "dropped, it is free");
}

#[tokio::test(start_paused = true)]
async fn the_minimum_time_is_sent_again_after_an_outage() {
    let store = Faulty::new();
    let (_locks, job) = machine(&store, 300);
    let faulty = Arc::clone(&store);
    let ran = job.run(|_| async move { faulty.renew_fails.store(true, Ordering::SeqCst) });
    let back = async {
        tokio::time::sleep(secs(15)).await;
        store.renew_fails.store(false, Ordering::SeqCst);
    };
    let (ran, ()) = tokio::join!(ran, back);
    assert_eq!(ran.unwrap(), Ran::Done(()));
    let free = first_free(&store, 400).await;
    assert!((270..=286).contains(&free), "free after {free} s");
}

#[tokio::test(start_paused = true)]
async fn a_late_renewal_does_not_shorten_the_minimum_time() {
    let store = Faulty::new();
    let (_locks, job) = machine(&store, 300);
    // The renewal at a third of the lease is applied seconds after the job has ended.
    store.renew_takes.store(6_000, Ordering::SeqCst);
    let faulty = Arc::clone(&store);
    let ran = job
        .run(|_| async move {
            tokio::time::sleep(secs(12)).await;
            faulty.renew_takes.store(0, Ordering::SeqCst);
        })
        .await
        .unwrap();
    assert_eq!(ran, Ran::Done(()));
    let free = first_free(&store, 400).await;
    assert!((270..=288).contains(&free), "free after {free} s");
}

#[tokio::test(start_paused = true)]
async fn the_outcome_is_returned_without_the_minimum_time() {
    let store = Faulty::new();
    let (locks, job) = machine(&store, 300);
    let faulty = Arc::clone(&store);
    let ran = job
        .run(|_| async move {
            faulty.renew_fails.store(true, Ordering::SeqCst);
            42
        })
        .await
        .unwrap();
    assert_eq!(ran, Ran::Done(42));
    locks.shutdown(millis(1)).await.unwrap();
    let free = first_free(&store, 400).await;
    assert!(free <= ONE_LEASE, "free after {free} s");
}

#[tokio::test(start_paused = true)]
async fn work_is_dropped_when_the_lock_is_lost() {
    let store = Faulty::new();
    let (_locks, job) = machine(&store, 300);
    store.renew_fails.store(true, Ordering::SeqCst);
    let error = job.run(|_| std::future::pending::<()>()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost);
    assert!(first_free(&store, 400).await <= 1);
}

#[tokio::test(start_paused = true)]
async fn a_minimum_time_beyond_the_longest_lease_is_refused() {
    let store = Faulty::new();
    let locks = Locks::new(store.clone()).unwrap();
    let job = locks.job("nightly").unwrap();
    let error = job.clone().with_at_least(secs(100_000)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config(ConfigIssue::Lease));
    *store.longest_lease.lock() = Some(secs(60));
    assert!(job.clone().with_at_least(secs(60)).is_ok());
    assert!(job.with_at_least(secs(61)).unwrap_err().to_string().contains("60s"));
}

#[test]
fn a_job_whose_runtime_has_ended_leaves_no_claim() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let store = Memory::new();
    let weak = Arc::downgrade(&store);
    let running = runtime();
    let mut work = running.block_on(async {
        let locks = Locks::new(store).unwrap();
        let job = locks.job("nightly").unwrap().with_at_least(secs(100)).unwrap();
        let mut work =
            Box::pin(async move { job.run(|_| std::future::pending::<()>()).await.is_ok() });
        assert!(work.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        Some(work)
    });
    drop(running);
    // The job is dropped on a runtime on which no task renews it.
    work.take();
    assert!(weak.upgrade().is_none(), "the locks and the store live on");
}
