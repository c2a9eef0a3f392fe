//! Work that outlived its lock.

use std::{
    future::poll_fn,
    ops::ControlFlow,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::Poll,
    thread,
    time::Duration,
};

use dlock_core::*;
use futures_util::poll;

use crate::support::{Faulty, secs};

/// The lease of locks whose work blocks its thread.
const BRIEF: Duration = Duration::from_millis(400);

/// Two clients of one store, by the machine's clock.
fn brief() -> [Locks; 2] {
    let store = Memory::new();
    let options = LockOptions::new().with_lease(BRIEF);
    [(); 2].map(|()| Locks::new(store.clone()).unwrap().with_options(options).unwrap())
}

/// Work that blocks the thread on which its lease would be renewed.
fn blocks() -> u32 {
    thread::sleep(BRIEF * 2);
    7
}

/// The work has ended, and reports it.
fn outlived<R, T: 'static>(ran: Result<R, Error>) -> T {
    let Err(error) = ran else { panic!("work that outlived its lock is Ok") };
    assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
    assert!(error.to_string().contains("the work has ended"), "{error}");
    error.take_output().expect("the output is kept")
}

#[tokio::test]
async fn work_that_blocks_past_its_lease_is_not_ok() {
    let [one, two] = brief();
    let lock = one.mutex("with").unwrap();
    assert_eq!(outlived::<_, u32>(lock.with(|_| async { blocks() }).await), 7);

    let guard = one.mutex("run").unwrap().lock().await.unwrap();
    assert_eq!(outlived::<_, u32>(guard.run(async { blocks() }).await), 7);
    assert_eq!(guard.release().await.unwrap(), Released::AlreadyLost);

    let guard = one.mutex("finish").unwrap().lock().await.unwrap();
    assert_eq!(outlived::<_, u32>(guard.finish(blocks()).await), 7);

    let guard = one.multi(["multi/1", "multi/2"]).unwrap().lock().await.unwrap();
    assert_eq!(outlived::<_, u32>(guard.run(async { blocks() }).await), 7);
    drop(guard);

    let owner = Owner::new();
    let guard = one.reentrant("entered").unwrap().lock_as(&owner).await.unwrap();
    assert_eq!(outlived::<_, u32>(guard.run(async { blocks() }).await), 7);
    drop(guard);

    for at_least in [0, 3600] {
        let job = one.job(format!("job/{at_least}")).unwrap();
        let job = job.with_at_least(secs(at_least)).unwrap();
        assert_eq!(outlived::<_, u32>(job.run(|_| async { blocks() }).await), 7);
        // The minimum time has ended, since another client held the lock meanwhile.
        let there = two.job(job.name().clone()).unwrap();
        assert_eq!(there.run(|_| async { 1 }).await.unwrap(), Ran::Done(1));
        let failing = job.run_or_release(|_| async { Err::<(), _>(blocks()) });
        assert_eq!(outlived::<_, Result<(), u32>>(failing.await), Err(7));
    }
}

/// Polls work under a lock, then lets its lease end while no timer fires, and polls it again. On a
/// runtime of several threads this happens after a pause of the process.
async fn starved<T: std::fmt::Debug>(
    what: &str,
    steps: &AtomicUsize,
    ran: impl Future<Output = Result<T, Error>>,
) {
    let mut ran = pin!(ran);
    let before = steps.load(Ordering::SeqCst);
    while steps.load(Ordering::SeqCst) == before {
        assert!(poll!(ran.as_mut()).is_pending(), "{what} ended early");
        tokio::task::yield_now().await;
    }
    thread::sleep(BRIEF);
    let begun = steps.load(Ordering::SeqCst);
    let Poll::Ready(ended) = poll!(ran) else { panic!("{what} waits for the late timer") };
    assert_eq!(steps.load(Ordering::SeqCst), begun, "{what}: the work went on");
    assert_eq!(ended.unwrap_err().kind(), ErrorKind::Lost, "{what}");
}

#[tokio::test]
async fn a_late_timer_does_not_let_work_go_on() {
    let steps = AtomicUsize::new(0);
    // The work wakes its task at each poll.
    let works = || {
        poll_fn(|cx| {
            steps.fetch_add(1, Ordering::SeqCst);
            cx.waker().wake_by_ref();
            Poll::<u32>::Pending
        })
    };
    let [one, _] = brief();
    let guard = one.mutex("run").unwrap().lock().await.unwrap();
    starved("run", &steps, guard.run(works())).await;
    let guard = one.multi(["multi/1", "multi/2"]).unwrap().lock().await.unwrap();
    starved("run of a multi-lock", &steps, guard.run(works())).await;
    let guard = one.reentrant("entered").unwrap().lock_as(&Owner::new()).await.unwrap();
    starved("run of a reentrant lock", &steps, guard.run(works())).await;
    let leadership = one.election("leads").unwrap().campaign().await.unwrap();
    starved("run of a leadership", &steps, leadership.run(works())).await;
    let lock = one.mutex("with").unwrap();
    starved("with", &steps, lock.with(|_| works())).await;
    let job = one.job("job").unwrap();
    starved("job", &steps, job.run(|_| works())).await;
    let failing = job.run_or_release(|_| async { Ok::<_, u32>(works().await) });
    starved("failing job", &steps, failing).await;
}

#[tokio::test]
async fn a_late_timer_does_not_delay_a_poll_of_lost() {
    let [one, _] = brief();
    for names in [vec!["one"], vec!["both/1", "both/2"]] {
        let guard = one.multi(names).unwrap().lock().await.unwrap();
        let mut lost = pin!(guard.lost());
        assert!(poll!(lost.as_mut()).is_pending());
        thread::sleep(BRIEF);
        assert!(poll!(lost).is_ready());
    }
}

#[tokio::test]
async fn a_leader_that_outlived_its_term_is_not_done() {
    let [one, _] = brief();
    let election = one.election("leader").unwrap();
    let done = election.lead(|_| async { ControlFlow::Break(blocks()) }).await;
    assert_eq!(outlived::<_, u32>(done), 7);
    // A leader that continues as a candidate does so nevertheless.
    let mut terms = 0;
    let done = election.lead(|term| {
        terms += 1;
        let first = terms == 1;
        async move {
            if first {
                blocks();
                return ControlFlow::Continue(());
            }
            ControlFlow::Break(term)
        }
    });
    assert!(done.await.is_ok());
    assert_eq!(terms, 2);
    let leadership = election.campaign().await.unwrap();
    assert_eq!(outlived::<_, u32>(leadership.run(async { blocks() }).await), 7);
}

#[tokio::test(start_paused = true)]
async fn a_loss_found_by_the_release_is_reported() {
    let store = Faulty::new();
    let [one, two] = [(); 2].map(|()| Locks::new(store.clone()).unwrap());
    // No renewal comes in between.
    let taken = |name: &'static str| {
        let two = two.clone();
        async move {
            assert_eq!(two.force_release(name).await.unwrap().len(), 1);
            7_u32
        }
    };
    assert_eq!(outlived::<_, u32>(one.mutex("n").unwrap().with(|_| taken("n")).await), 7);
    let guard = one.mutex("n").unwrap().lock().await.unwrap();
    assert_eq!(outlived::<_, u32>(guard.finish(taken("n").await).await), 7);
    for at_least in [0, 100] {
        let job = one.job("n").unwrap().with_at_least(secs(at_least)).unwrap();
        assert_eq!(outlived::<_, u32>(job.run(|_| taken("n")).await), 7);
        let ran = job.run_or_release(|_| async { Ok::<_, ()>(taken("n").await) }).await;
        assert_eq!(outlived::<_, Result<u32, ()>>(ran), Ok(7));
    }
    let election = one.election("n").unwrap();
    let done = election.lead(|_| async { ControlFlow::Break(taken("n").await) }).await;
    assert_eq!(outlived::<_, u32>(done), 7);
}

#[tokio::test(start_paused = true)]
async fn the_error_names_the_lost_part_of_a_multi_lock() {
    let store = Faulty::new();
    let [here, admin] = [(); 2].map(|()| Locks::new(store.clone()).unwrap());
    let there = Locks::new(Faulty::new()).unwrap();
    let across = || {
        let locks = [there.mutex("a").unwrap(), here.mutex("b").unwrap()];
        MultiMutex::across(locks).unwrap()
    };
    let taken = async || assert_eq!(admin.force_release("b").await.unwrap().len(), 1);
    let with = across().with(|_| async { taken().await }).await;
    let guard = across().lock().await.unwrap();
    taken().await;
    for ended in [with, guard.finish(()).await] {
        let error = ended.unwrap_err();
        assert_eq!(error.lock().map(LockName::as_str), Some("b"), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_release_does_not_fail_the_work() {
    let store = Faulty::new();
    let locks = Locks::new(store.clone()).unwrap();
    let lock = locks.mutex("n").unwrap();
    let faulty = Arc::clone(&store);
    let ran = lock.with(|_| async move { faulty.release_fails.store(true, Ordering::SeqCst) });
    ran.await.unwrap();
}
