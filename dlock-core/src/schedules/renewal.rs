//! The renewal task, while holders acquire and release, and while a job leaves its lock to the store.

use std::time::Duration;

use tokio::sync::Notify;

use super::{
    check,
    end::watched,
    world::{Answers, NAME, World, a_while, passing},
};
use crate::{
    Backend, Ended, LockName, Ran, Released,
    sync::{point, time},
};

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

#[test]
fn a_lock_that_is_parted_with_is_kept_and_forgotten() {
    check(|| parted(Answers::AtOnce, false));
    check(|| parted(Answers::Later, false));
}

#[test]
fn a_lock_of_a_dropped_job_is_kept_and_forgotten() {
    check(|| parted(Answers::AtOnce, true));
    check(|| parted(Answers::Later, true));
}

/// A job ends or is dropped at any time while its lock is renewed. Nothing of it remains in the
/// process. Whatever was in flight, the store keeps the lock for far longer than a lease.
async fn parted(answers: Answers, dropped: bool) {
    let world = World::new(answers);
    let job = world.locks.job(NAME).unwrap().with_at_least(Duration::from_secs(600)).unwrap();
    // Enough for a renewal, which is half a second early, and too little for one to time out.
    let time = passing(Duration::from_millis(4_800));
    let began = Notify::new();
    let run = job.run(|_| async {
        began.notify_one();
        if dropped {
            std::future::pending::<()>().await;
        }
        for _ in 0..5 {
            point();
            shuttle::future::yield_now().await;
        }
    });
    let drops = async {
        if !dropped {
            std::future::pending::<()>().await;
        }
        began.notified().await;
        a_while();
    };
    tokio::select! {
        ran = run => assert_eq!(ran.unwrap(), Ran::Done(())),
        () = drops => {}
    }
    time.await.unwrap();
    world.until_idle().await;
    let state = world.store.inspect(&LockName::new(NAME).unwrap()).await.unwrap();
    let [holder] = &*state.holders else { panic!("it is not kept: {state:?}") };
    assert!(holder.remaining > Duration::from_secs(500), "it is cut short: {state:?}");
}
