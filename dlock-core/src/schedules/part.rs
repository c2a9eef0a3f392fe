//! A job that leaves its lock to the store while renewals are in flight.

use std::time::Duration;

use tokio::sync::Notify;

use super::{
    check,
    world::{Answers, NAME, World, a_while, passing},
};
use crate::{Backend, LockName, Ran, sync::point};

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
