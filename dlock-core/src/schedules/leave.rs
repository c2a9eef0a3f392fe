//! Tasks that stop waiting while a grant for them is in flight.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use futures_util::FutureExt;

use super::{
    check,
    world::{Answers, NAME, World, a_while},
};
use crate::{Backend, ConfigIssue, ErrorKind, LockName, sync::time};

#[test]
fn a_dropped_waiter_leaves_no_claim() {
    check(|| dropped(Answers::AtOnce));
    check(|| dropped(Answers::Later));
}

#[test]
fn a_dropped_waiter_of_another_process_leaves_no_claim() {
    check(|| dropped_waiter(Answers::AtOnce));
    check(|| dropped_waiter(Answers::Later));
}

#[test]
fn a_waiter_that_times_out_leaves_no_claim() {
    check(|| timed_out(Answers::AtOnce));
    check(|| timed_out(Answers::Later));
}

#[test]
fn shutdown_waits_for_dropped_guards() {
    check(shut_down);
}

/// A task waits in the process and is dropped while it gets the lock; another task still gets it.
pub(super) async fn dropped(answers: Answers) {
    let world = World::new(answers);
    world.warm().await;
    let lock = world.locks.mutex(NAME).unwrap();
    let guard = lock.lock().await.unwrap();
    let mut leaving = Box::pin(async move { lock.lock().await });
    assert!(leaving.as_mut().now_or_never().is_none(), "two hold the lock");
    let stays = world.worker(1);
    let leaves = shuttle::future::spawn(async move {
        a_while();
        drop(leaving);
    });
    guard.release().await.unwrap();
    stays.await.unwrap();
    leaves.await.unwrap();
    world.is_over(usize::MAX).await;
}

/// A task waits in the store's queue, or its request is in flight, and it is dropped at any time.
pub(super) async fn dropped_waiter(answers: Answers) {
    let world = World::new(answers);
    let other = world.another();
    let holder = world.worker(1);
    let (leaving, stays) = (other.worker(1), other.worker(1));
    a_while();
    leaving.abort();
    let _ = leaving.await;
    holder.await.unwrap();
    stays.await.unwrap();
    other.until_idle().await;
    world.is_over(usize::MAX).await;
}

/// A holder and its program end: by then all releases have reached the store.
pub(super) async fn shut_down() {
    let world = World::new(Answers::Later);
    let lock = world.locks.mutex(NAME).unwrap();
    let guard = lock.lock().await.unwrap();
    let next = shuttle::future::spawn(async move {
        if let Err(error) = lock.lock().await {
            assert_eq!(error.kind(), ErrorKind::Config(ConfigIssue::ShutDown), "{error}");
        }
    });
    let drops = shuttle::future::spawn(async move { drop(guard) });
    let over = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&over);
    let ticks = shuttle::future::spawn(async move {
        while !seen.load(SeqCst) {
            time::advance(Duration::from_millis(20));
            shuttle::future::yield_now().await;
        }
    });
    world.locks.shutdown(Duration::MAX).await.unwrap();
    let state = world.store.inspect(&LockName::new(NAME).unwrap()).await.unwrap();
    assert!(state.is_free(), "shut down before it was given back: {state:?}");
    over.store(true, SeqCst);
    for task in [next, drops, ticks] {
        task.await.unwrap();
    }
    world.is_over(usize::MAX).await;
}

/// The wait ends at the moment of the grant.
pub(super) async fn timed_out(answers: Answers) {
    let world = World::new(answers);
    let holder = world.worker(2);
    let lock = world.locks.mutex(NAME).unwrap();
    let waiter = shuttle::future::spawn(async move {
        match lock.lock_timeout(Duration::from_secs(1)).await {
            Ok(guard) => guard.check().map(drop).expect("the lock is held"),
            Err(error) => assert_eq!(error.kind(), ErrorKind::Timeout, "{error}"),
        }
    });
    a_while();
    time::advance(Duration::from_secs(2));
    waiter.await.unwrap();
    holder.await.unwrap();
    world.worker(1).await.unwrap();
    world.is_over(usize::MAX).await;
}
