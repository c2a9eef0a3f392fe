//! The renewal task, while holders acquire and release.

use std::time::Duration;

use super::{
    check,
    end::watched,
    world::{Answers, NAME, World, passing},
};
use crate::{Ended, Released, sync::time};

#[test]
fn a_renewal_never_meets_another_grant() {
    check(|| against_release(Answers::AtOnce));
    check(|| against_release(Answers::Later));
}

#[test]
fn a_lock_is_held_for_longer_than_its_lease() {
    check(|| renewed(Answers::AtOnce));
    check(|| renewed(Answers::Later));
}

/// Less than a lease passes, so no schedule may lose a lock.
pub(super) async fn against_release(answers: Answers) {
    let world = World::new(answers);
    world.store.fail(1);
    let lock = world.locks.mutex(NAME).unwrap();
    let guard = lock.lock().await.unwrap();
    let time = passing(Duration::from_secs(11));
    let tasks = [world.worker(3), world.worker(1)];
    assert_eq!(watched(guard).await, (Ended::Released, Released::Released));
    for task in tasks {
        task.await.unwrap();
    }
    time.await.unwrap();
    world.is_over(0).await;
}

/// Time advances only after each renewal, for longer than a lease; another process waits.
pub(super) async fn renewed(answers: Answers) {
    let world = World::new(answers);
    let guard = world.locks.mutex(NAME).unwrap().lock().await.unwrap();
    let other = world.another();
    let next = other.worker(1);
    for _ in 0..4 {
        time::advance(Duration::from_secs(11));
        world.store.renewed.notified().await;
        // The answer may still be in flight to the renewal task; the lease runs anyway.
        guard.check().expect("the lock is kept");
    }
    assert_eq!(guard.release().await.unwrap(), Released::Released);
    next.await.unwrap();
    other.until_idle().await;
    world.is_over(0).await;
}
