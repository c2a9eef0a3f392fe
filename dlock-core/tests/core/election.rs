//! One candidate leads at a time; the next one leads after its end.

#![expect(clippy::disallowed_methods, reason = "tests start tasks of their own")]

use std::{
    ops::ControlFlow,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

use crate::support::{Faulty, millis, secs};
use dlock_core::*;
use tokio::sync::mpsc;

/// Candidates of two processes.
fn two(store: &Arc<Faulty>) -> [Election; 2] {
    [(); 2].map(|()| {
        let locks = Locks::new(store.clone()).expect("a runtime");
        locks.election("leader").expect("a name")
    })
}

#[tokio::test(start_paused = true)]
async fn one_leads_and_the_next_when_it_resigns() {
    let [one, two] = two(&Faulty::new());
    assert!(one.leader().await.unwrap().is_none());
    let first = one.campaign().await.unwrap();
    let seen = two.leader().await.unwrap().unwrap();
    assert_eq!(seen.token, Some(first.term()));
    assert!(seen.remaining > secs(29), "{seen:?}");
    assert!(two.try_campaign().await.unwrap().is_none());
    assert!(one.try_campaign().await.unwrap().is_none(), "within the process it is no other");

    let candidate = two.clone();
    let waiting = tokio::spawn(async move { candidate.campaign().await });
    tokio::time::sleep(secs(100)).await;
    assert_eq!(first.check().unwrap(), first.term());
    let term = first.term();
    assert_eq!(first.resign().await.unwrap(), Released::Released);
    let second = waiting.await.unwrap().unwrap();
    assert!(second.term() > term);
    drop(second);
    tokio::time::sleep(millis(10)).await;
    assert!(one.try_campaign().await.unwrap().is_some(), "dropping resigns");
}

#[tokio::test(start_paused = true)]
async fn leadership_is_not_handed_off_past_waiters_elsewhere() {
    let store = Faulty::new();
    let [one, two] = two(&store);
    let first = one.campaign().await.unwrap();
    let (terms, mut led) = mpsc::channel(2);
    for (who, candidate) in [("two", two), ("one", one)] {
        let terms = terms.clone();
        tokio::spawn(async move {
            let leadership = candidate.campaign().await.unwrap();
            terms.send(who).await.unwrap();
            drop(leadership);
        });
        tokio::time::sleep(millis(5)).await;
    }
    first.resign().await.unwrap();
    assert_eq!([led.recv().await, led.recv().await], [Some("two"), Some("one")]);
}

#[tokio::test(start_paused = true)]
async fn the_next_leads_when_a_leader_dies() {
    let store = Faulty::new();
    let [_, two] = two(&store);
    // A dead process sends no renewals and no releases.
    let dead = AcquireRequest::new(LockName::new("leader").unwrap(), Mode::Exclusive, secs(30));
    let Acquired::Granted(grant) = store.inner.acquire(&dead).await.unwrap() else {
        panic!("not granted")
    };
    let next = two.campaign().await.unwrap();
    assert!(next.term() > grant.token);
}

#[tokio::test(start_paused = true)]
async fn lost_leadership_cancels_work_and_a_later_term_restarts_it() {
    struct Running(Arc<AtomicUsize>);
    impl Drop for Running {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Ordering::SeqCst);
        }
    }
    let store = Faulty::new();
    let [one, two] = two(&store);
    let running = Arc::new(AtomicUsize::new(0));
    let (terms, mut told) = mpsc::channel(8);
    let seen = Arc::clone(&running);
    let leading = tokio::spawn(async move {
        one.lead(move |term| {
            let (seen, terms) = (Arc::clone(&seen), terms.clone());
            async move {
                assert_eq!(seen.fetch_add(1, Ordering::SeqCst), 0, "two terms at a time");
                let _running = Running(seen);
                terms.send(term).await.unwrap();
                std::future::pending::<ControlFlow<()>>().await
            }
        })
        .await
    });
    let first = told.recv().await.unwrap();
    store.renew_fails.store(true, Ordering::SeqCst);
    let other = two.campaign().await.unwrap();
    assert_eq!(running.load(Ordering::SeqCst), 0, "it works on although another leads");
    assert!(other.term() > first);
    store.renew_fails.store(false, Ordering::SeqCst);
    let term = other.term();
    other.resign().await.unwrap();
    assert!(told.recv().await.unwrap() > term);
    leading.abort();
    assert!(leading.await.unwrap_err().is_cancelled());
    tokio::time::sleep(millis(10)).await;
    assert_eq!(running.load(Ordering::SeqCst), 0);
    assert!(two.try_campaign().await.unwrap().is_some(), "it resigns when it is dropped");
}

#[tokio::test(start_paused = true)]
async fn work_ends_the_election_or_continues_it() {
    let [one, two] = two(&Faulty::new());
    let calls = AtomicU64::new(0);
    let done = one
        .lead(|term| {
            let call = calls.fetch_add(1, Ordering::SeqCst);
            async move {
                if call < 3 { ControlFlow::Continue(()) } else { ControlFlow::Break(term) }
            }
        })
        .await
        .unwrap();
    assert_eq!(calls.load(Ordering::SeqCst), 4);
    assert!(two.try_campaign().await.unwrap().unwrap().term() > done, "it resigned at the end");
}

#[tokio::test(start_paused = true)]
async fn an_election_retries_longer_than_a_lease_in_an_outage() {
    let store = Faulty::new();
    let [one, _] = two(&store);
    // Far more requests than a plain `lock` sends within a lease.
    store.acquire_fails.store(200, Ordering::SeqCst);
    assert!(one.campaign().await.is_err());
    let began = tokio::time::Instant::now();
    let done = one.lead(|term| async move { ControlFlow::Break(term) }).await.unwrap();
    assert!(began.elapsed() > secs(30), "{:?}", began.elapsed());
    assert_eq!(store.acquire_fails.load(Ordering::SeqCst), 0);
    assert!(one.try_campaign().await.unwrap().unwrap().term() > done);
}

#[tokio::test(start_paused = true)]
async fn a_permanent_error_ends_the_election() {
    let store = Faulty::new();
    let locks = Locks::new(store).unwrap();
    let election = locks.election("leader").unwrap();
    locks.shutdown(secs(1)).await.unwrap();
    let error = election.lead(|_| async { ControlFlow::Break(()) }).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config(ConfigIssue::ShutDown));
    assert!(locks.election("").is_err());
}
