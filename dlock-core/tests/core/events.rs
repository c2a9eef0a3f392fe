//! Events of a store: steps of its clock, and the loss of its data.

use std::{sync::atomic::Ordering, time::Duration};

use crate::support::{Faulty, millis, secs};
use dlock_core::*;

fn step(store: &Faulty, forward: bool, by: Duration) {
    let seen = store.clock().now();
    let event = StoreEvent::ClockStep { shard: 0, forward, by, seen };
    assert!(store.events.send(event) > 0, "nobody listens");
}

#[tokio::test(start_paused = true)]
async fn a_step_forward_shortens_leases_and_ends_expired_ones() {
    let store = Faulty::new();
    let locks = Locks::new(store.clone()).unwrap();
    let brief = locks.with_options(LockOptions::new().with_lease(secs(10))).unwrap();
    let over = brief.mutex("over").unwrap().lock().await.unwrap();
    let shorter = locks.mutex("shorter").unwrap().lock().await.unwrap();
    tokio::time::sleep(secs(1)).await;
    let before = shorter.remaining();
    store.renew_fails.store(true, Ordering::SeqCst);
    step(&store, true, secs(12));
    tokio::time::sleep(millis(1)).await;
    let after = locks.mutex("after").unwrap().lock().await.unwrap();

    assert_eq!(over.lost().await, Ended::ClockStep);
    let error = over.check().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost);
    assert!(error.to_string().contains("clock was set forward"), "{error}");
    assert!(shorter.remaining() + secs(12) <= before, "{:?}", shorter.remaining());
    assert!(after.remaining() > secs(29), "{:?}", after.remaining());
    // A renewal restarts the whole lease.
    store.renew_fails.store(false, Ordering::SeqCst);
    tokio::time::sleep(secs(4)).await;
    assert!(shorter.remaining() > secs(25), "{:?}", shorter.remaining());
    tokio::time::sleep(secs(100)).await;
    assert!(shorter.check().is_ok() && after.check().is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_shortened_lease_is_renewed_before_it_ends() {
    let store = Faulty::new();
    let locks = Locks::new(store.clone()).unwrap();
    let young = locks.mutex("young").unwrap().lock().await.unwrap();
    step(&store, true, Duration::ZERO);
    tokio::time::sleep(millis(500)).await;
    step(&store, true, secs(28));
    tokio::time::sleep(secs(5)).await;
    assert_eq!(young.state(), GuardState::Held);
    assert!(young.remaining() > secs(20), "{:?}", young.remaining());
}

#[tokio::test(start_paused = true)]
async fn a_step_back_and_one_of_another_shard_end_nothing() {
    let store = Faulty::new();
    let locks = Locks::new(store.clone()).unwrap();
    let guard = locks.mutex("n").unwrap().lock().await.unwrap();
    let before = guard.remaining();
    tokio::time::sleep(millis(1)).await;
    step(&store, false, secs(3600));
    let seen = store.clock().now();
    let elsewhere = StoreEvent::ClockStep { shard: 7, forward: true, by: secs(3600), seen };
    assert!(store.events.send(elsewhere) > 0);
    tokio::time::sleep(millis(1)).await;
    assert!(guard.remaining() + millis(3) >= before, "{:?}", guard.remaining());
    tokio::time::sleep(secs(100)).await;
    assert!(guard.check().is_ok());
}

/// The store granted and renewed before the step, and its answers arrive after the event.
#[tokio::test(start_paused = true)]
async fn a_clock_step_shortens_the_deadline_of_replies_in_flight() {
    let store = Faulty::new();
    let locks = Locks::new(store.clone()).unwrap();
    store.answer_takes.store(100, Ordering::SeqCst);
    let mutex = locks.mutex("n").unwrap();
    let told = async {
        tokio::time::sleep(millis(50)).await;
        step(&store, true, secs(3));
    };
    let (guard, ()) = tokio::join!(mutex.lock(), told);
    let guard = guard.unwrap();
    assert!(guard.remaining() <= secs(27), "{:?}", guard.remaining());

    // The next renewal is under way when the clock steps again.
    store.renew_takes.store(2000, Ordering::SeqCst);
    while store.renew_calls.load(Ordering::SeqCst) == 0 {
        tokio::time::sleep(millis(50)).await;
    }
    tokio::time::sleep(millis(500)).await;
    step(&store, true, secs(3));
    tokio::time::sleep(millis(1600)).await;
    assert!(guard.remaining() <= secs(25), "{:?}", guard.remaining());
    // The renewal was retried once, and this time the answer counts.
    tokio::time::sleep(secs(3)).await;
    assert!(guard.remaining() > secs(26), "{:?}", guard.remaining());
    store.renew_takes.store(0, Ordering::SeqCst);
    tokio::time::sleep(secs(100)).await;
    assert!(guard.check().is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_store_without_its_data_is_named_as_the_reason() {
    let store = Faulty::new();
    let locks = Locks::new(store.clone()).unwrap();
    let guard = locks.mutex("n").unwrap().lock().await.unwrap();
    let mut writer = locks.rw("rw").unwrap().write().lock().await.unwrap();
    store.forgot.store(true, Ordering::SeqCst);
    let error = writer.downgrade().await.unwrap_err();
    assert!(error.to_string().contains("has lost its data"), "{error}");
    assert_eq!(writer.lost().await, Ended::StoreReset);
    assert_eq!(guard.lost().await, Ended::StoreReset);
    let error = guard.check().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost);
    assert!(error.to_string().contains("has lost its data"), "{error}");
}
