//! Compares the reported end of a guard with its actual end.

use std::{sync::Arc, time::Duration};

use tokio::sync::Notify;

use super::{
    check,
    world::{Answers, NAME, World, a_while, passing},
};
use crate::{Ended, Guard, LockOptions, Released, Renew};

#[test]
fn a_release_is_reported_once() {
    check(|| released(Answers::AtOnce));
    check(|| released(Answers::Later));
}

#[test]
fn an_expiry_is_reported_once() {
    check(|| expired(Answers::AtOnce));
    check(|| expired(Answers::Later));
}

#[test]
fn a_revocation_is_reported_once() {
    check(|| revoked(Answers::AtOnce));
    check(|| revoked(Answers::Later));
}

/// The guard is released while a task watches it and another task waits for the lock.
pub(super) async fn released(answers: Answers) {
    let world = World::new(answers);
    world.warm().await;
    let lock = world.locks.mutex(NAME).unwrap();
    let guard = lock.lock().await.unwrap();
    let notified = Arc::new(Notify::new());
    let (next, heard) = (world.worker(1), Arc::clone(&notified));
    // The next holder keeps the lock until the end of the first guard has been reported.
    let keeps = shuttle::future::spawn(async move {
        let guard = lock.lock().await.unwrap();
        heard.notified().await;
        drop(guard);
    });
    assert_eq!(watched(guard).await, (Ended::Released, Released::Released));
    notified.notify_one();
    keeps.await.unwrap();
    next.await.unwrap();
    world.is_over(0).await;
}

/// No renewal happens, and the lease expires meanwhile.
pub(super) async fn expired(answers: Answers) {
    let mut world = World::new(answers);
    let brief = LockOptions::new().with_renew(Renew::Never).with_lease(Duration::from_secs(20));
    let locks = world.locks.with_options(brief).unwrap();
    let lock = locks.mutex(NAME).unwrap();
    world.locks = locks;
    world.warm().await;
    let guard = lock.lock().await.unwrap();
    let next = {
        let lock = lock.clone();
        shuttle::future::spawn(async move { drop(lock.lock().await.unwrap()) })
    };
    let time = passing(Duration::from_secs(11));
    match watched(guard).await {
        (Ended::Released, _) | (Ended::Expired, Released::AlreadyLost) => {}
        other => panic!("reported {other:?}"),
    }
    next.await.unwrap();
    time.await.unwrap();
    world.is_over(2).await;
}

/// The store revokes the lock meanwhile, and reports it.
pub(super) async fn revoked(answers: Answers) {
    let world = World::new(answers);
    world.warm().await;
    let lock = world.locks.mutex(NAME).unwrap();
    let guard = lock.lock().await.unwrap();
    let next = shuttle::future::spawn(async move { drop(lock.lock().await.unwrap()) });
    let store = world.store.clone();
    let breaker = shuttle::future::spawn(async move { store.revoke().await });
    match watched(guard).await {
        (Ended::Released, _) | (Ended::Revoked, Released::AlreadyLost) => {}
        other => panic!("reported {other:?}"),
    }
    breaker.await.unwrap();
    next.await.unwrap();
    world.is_over(2).await;
}

/// Releases the guard with two watchers; returns the end that they saw, and the result of the
/// release.
pub(super) async fn watched(guard: Guard) -> (Ended, Released) {
    let (first, second) = (guard.lost(), guard.lost());
    let watcher = shuttle::future::spawn(first);
    a_while();
    let seen = guard.check();
    let released = guard.release().await.unwrap();
    let ended = watcher.await.unwrap();
    assert_eq!(ended, second.await, "two watchers saw different ends");
    if seen.is_err() {
        assert_ne!(ended, Ended::Released, "a lost lock ended as released");
    }
    (ended, released)
}
