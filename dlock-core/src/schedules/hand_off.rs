//! Tasks and processes that hand a lock off.

use std::time::Duration;

use super::{
    check,
    world::{Answers, NAME, World, passing},
};
use crate::LockExt;

#[test]
fn a_lock_goes_round_the_process() {
    check(|| within_a_process(Answers::AtOnce));
    check(|| within_a_process(Answers::Later));
}

#[test]
fn a_lock_goes_round_two_processes() {
    check(|| between_processes(Answers::AtOnce));
    check(|| between_processes(Answers::Later));
}

#[test]
fn work_is_confirmed_after_its_hand_off() {
    check(|| of_work(Answers::AtOnce));
    check(|| of_work(Answers::Later));
}

#[test]
fn work_is_confirmed_while_a_later_task_holds_the_lock() {
    check(|| of_work_before(Answers::AtOnce));
    check(|| of_work_before(Answers::Later));
}

#[test]
fn revoked_work_is_never_ok() {
    check(|| of_revoked_work(Answers::AtOnce));
    check(|| of_revoked_work(Answers::Later));
}

#[test]
fn a_renewal_confirms_no_work_that_ended_after_it() {
    check(|| of_work_revoked_after_a_renewal(Answers::AtOnce));
    check(|| of_work_revoked_after_a_renewal(Answers::Later));
}

pub(super) async fn within_a_process(answers: Answers) {
    let world = World::new(answers);
    world.warm().await;
    let tasks = [world.worker(2), world.worker(2), world.worker(1)];
    for task in tasks {
        task.await.unwrap();
    }
    world.is_over(0).await;
}

/// The results of work wait for the store, and the hand-offs do not.
pub(super) async fn of_work(answers: Answers) {
    let world = World::new(answers);
    // It keeps the local queue.
    let lock = world.locks.mutex(NAME).unwrap();
    world.warm().await;
    let tasks = [2, 1].map(|rounds| {
        let lock = world.locks.mutex(NAME).unwrap();
        shuttle::future::spawn(async move {
            for round in 0..rounds {
                assert_eq!(lock.with(|_| async move { round }).await.unwrap(), round);
            }
        })
    });
    for task in tasks {
        task.await.unwrap();
    }
    drop(lock);
    world.is_over(0).await;
}

/// The task that gets the lock keeps it until the work before is confirmed.
async fn of_work_before(answers: Answers) {
    let world = World::new(answers);
    let (lock, next) = (world.locks.mutex(NAME).unwrap(), world.locks.mutex(NAME).unwrap());
    world.warm().await;
    let (begun, begins) = tokio::sync::oneshot::channel();
    let first = shuttle::future::spawn(async move {
        lock.with(|_| async move { begun.send(()).unwrap() }).await.unwrap();
    });
    begins.await.unwrap();
    let time = passing(Duration::from_millis(6));
    let guard = next.lock().await.unwrap();
    first.await.unwrap();
    guard.release().await.unwrap();
    drop(next);
    time.await.unwrap();
    world.is_over(0).await;
}

/// The store does not report that it has revoked the lock.
async fn of_revoked_work(answers: Answers) {
    let world = World::new(answers);
    let lock = world.locks.mutex(NAME).unwrap();
    world.warm().await;
    let (revoked, store) = (world.locks.mutex(NAME).unwrap(), world.store.clone());
    let revoked = shuttle::future::spawn(async move {
        let ran = revoked.with(|_| async { store.revoke_silently().await }).await;
        // Nothing was revoked if the claim had not reached the store's list of holders.
        assert!(ran.is_err(), "the work outlived its lock: {ran:?}");
    });
    let other = world.worker_that_may_lose(1);
    revoked.await.unwrap();
    other.await.unwrap();
    drop(lock);
    world.is_over(2).await;
}

/// As above, while a renewal that confirms earlier work is in flight.
async fn of_work_revoked_after_a_renewal(answers: Answers) {
    let world = World::new(answers);
    let locks = [(); 3].map(|()| world.locks.mutex(NAME).unwrap());
    world.warm().await;
    let [lock, earlier, revoked] = locks;
    // It may be lost as well: its renewal may come after the revocation.
    let earlier = shuttle::future::spawn(async move { drop(earlier.with(|_| async {}).await) });
    let store = world.store.clone();
    let revoked = shuttle::future::spawn(async move {
        let ran = revoked.with(|_| async { store.revoke_silently().await }).await;
        assert!(ran.is_err(), "the work outlived its lock: {ran:?}");
    });
    let other = world.worker_that_may_lose(1);
    for task in [earlier, revoked, other] {
        task.await.unwrap();
    }
    drop(lock);
    world.is_over(3).await;
}

pub(super) async fn between_processes(answers: Answers) {
    let world = World::new(answers);
    let other = world.another();
    let tasks = [world.worker(2), world.worker(1), other.worker(2)];
    for task in tasks {
        task.await.unwrap();
    }
    other.until_idle().await;
    world.is_over(0).await;
}
