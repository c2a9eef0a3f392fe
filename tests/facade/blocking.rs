//! Locks without a runtime.

use std::{thread, time::Duration};

use dlock::{
    ErrorKind, LockOptions,
    blocking::{Guard, connect},
    error::ConfigIssue,
    guard::Released,
    job::Ran,
    kinds::Owner,
};

#[test]
fn every_kind_is_taken_and_released() {
    let locks = connect("memory:").unwrap();
    let owner = Owner::new();
    let reentrant = locks.reentrant("reentrant").unwrap();
    let outer = reentrant.lock_as(&owner).unwrap();
    let rw = locks.rw("rw").unwrap();
    let semaphore = locks.semaphore("semaphore", 3).unwrap();
    let guards: [Guard; 8] = [
        locks.mutex("mutex").unwrap().lock().unwrap(),
        locks.fair("fair").unwrap().lock_timeout(Duration::from_secs(1)).unwrap(),
        reentrant.try_lock_as(&owner).unwrap().unwrap(),
        rw.read().lock().unwrap(),
        rw.read().try_lock().unwrap().unwrap(),
        semaphore.acquire_many(2).unwrap(),
        semaphore.try_acquire().unwrap().unwrap(),
        locks.multi(["one", "two"]).unwrap().lock().unwrap(),
    ];
    assert_eq!(reentrant.hold_count(&owner), 2);
    assert!(rw.write().try_lock().unwrap().is_none());
    assert!(semaphore.try_acquire().unwrap().is_none());
    assert_eq!(locks.inspect("semaphore").unwrap().holders.len(), 2);
    assert_eq!(locks.health(Duration::from_secs(5)).unwrap().held, 9);
    drop(outer);
    for guard in guards {
        assert!(!guard.is_lost());
        guard.check().unwrap();
        assert_eq!(guard.release().unwrap(), Released::Released);
    }
    let mut write = rw.write().lock().unwrap();
    write.downgrade().unwrap();
    assert!(rw.read().try_lock().unwrap().is_some());
    drop(write);
    assert!(locks.mutex("mutex").unwrap().with(|token| token.get() > 0).unwrap());
    let job = locks.as_async().job("job").unwrap();
    let ran = locks.block_on(job.run(|_| async { 1 })).unwrap().unwrap();
    assert_eq!(ran, Ran::Done(1));
    locks.shutdown(Duration::from_secs(5)).unwrap();
    let error = locks.mutex("mutex").unwrap().lock().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config(ConfigIssue::ShutDown));
}

#[test]
fn the_lease_is_renewed_while_the_caller_works() {
    let options = LockOptions::new().with_lease(Duration::from_millis(200));
    let locks = connect("memory:").unwrap().with_options(options).unwrap();
    let guard = locks.fair("n").unwrap().lock().unwrap();
    let other = locks.clone();
    let busy = thread::spawn(move || {
        // Meanwhile, the caller's thread does no work for the lock.
        thread::sleep(Duration::from_millis(1500));
        other.fair("n").unwrap().try_lock().unwrap().is_none()
    });
    assert!(busy.join().unwrap());
    assert!(!guard.is_lost());
    assert_eq!(guard.release().unwrap(), Released::Released);
}

#[test]
fn threads_take_turns_also_after_a_dropped_guard() {
    let locks = connect("memory:").unwrap();
    let threads: Vec<_> = (0..8)
        .map(|_| {
            let lock = locks.mutex("n").unwrap();
            thread::spawn(move || (0..20).map(|_| lock.lock().unwrap().token()).collect::<Vec<_>>())
        })
        .collect();
    let mut tokens: Vec<_> = threads.into_iter().flat_map(|it| it.join().unwrap()).collect();
    tokens.sort_unstable();
    tokens.dedup();
    assert_eq!(tokens.len(), 160, "each has a token of its own");
}

#[test]
fn busy_is_an_answer_and_a_wait_ends() {
    let locks = connect("memory:?dlock.wait=20ms").unwrap();
    let lock = locks.mutex("n").unwrap();
    let held = lock.lock().unwrap();
    assert!(lock.try_lock().unwrap().is_none());
    assert_eq!(lock.lock().unwrap_err().kind(), ErrorKind::Timeout);
    let error = lock.lock_timeout(Duration::from_millis(10)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    drop(held);
}

#[test]
fn in_async_code_it_is_an_error_and_no_panic() {
    let locks = connect("memory:").unwrap();
    let (first, second) = (locks.mutex("a").unwrap(), locks.mutex("b").unwrap());
    let (guard, dropped) = (first.lock().unwrap(), second.lock().unwrap());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let errors = [
            connect("memory:").unwrap_err(),
            second.lock().unwrap_err(),
            guard.release().unwrap_err(),
            locks.shutdown(Duration::from_secs(1)).unwrap_err(),
            locks.health(Duration::from_secs(1)).unwrap_err(),
        ];
        for error in errors {
            assert_eq!(error.kind(), ErrorKind::Config(ConfigIssue::Runtime), "{error}");
            assert!(error.to_string().contains("dlock::connect"), "{error}");
        }
        drop(dropped);
    });
    // A guard that was dropped there is nevertheless released in the background.
    drop(first.lock().unwrap());
    drop(second.lock().unwrap());
    // The last of them may be dropped there, too.
    runtime.block_on(async move { drop((first, second, locks)) });
}

/// Acquires a lock, waits for a held one without success, and releases it for another thread.
#[expect(clippy::unwrap_used, reason = "a helper of tests")]
fn takes_locks() {
    let locks = connect("memory:").unwrap();
    let lock = locks.mutex("a").unwrap();
    let held = lock.lock().unwrap();
    let error = lock.lock_timeout(Duration::from_millis(20)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    let waits = std::thread::spawn({
        let lock = lock.clone();
        move || lock.lock().unwrap().finish(7).unwrap()
    });
    assert_eq!(held.finish(3).unwrap(), 3);
    assert_eq!(waits.join().unwrap(), 7);
    locks.shutdown(Duration::from_secs(5)).unwrap();
}

#[test]
fn threads_of_a_runtime_that_may_block_take_locks() {
    for mut builder in
        [tokio::runtime::Builder::new_current_thread(), tokio::runtime::Builder::new_multi_thread()]
    {
        let runtime = builder.enable_all().build().unwrap();
        runtime.block_on(async { tokio::task::spawn_blocking(takes_locks).await.unwrap() });
        // A runtime that is only entered does not poll tasks.
        let _entered = runtime.enter();
        takes_locks();
    }
    let threads = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    threads.block_on(async { tokio::task::block_in_place(takes_locks) });
}

#[test]
fn calls_from_tasks_are_refused_and_cost_no_budget() {
    for mut builder in
        [tokio::runtime::Builder::new_current_thread(), tokio::runtime::Builder::new_multi_thread()]
    {
        let runtime = builder.enable_all().build().unwrap();
        let refused = async {
            for _ in 0..3 {
                let error = connect("memory:").unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Config(ConfigIssue::Runtime), "{error}");
                assert!(tokio::task::coop::has_budget_remaining());
            }
            // Also at the end of its budget.
            while tokio::task::coop::has_budget_remaining() {
                let mut step = std::pin::pin!(tokio::task::coop::consume_budget());
                let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
                let _ = std::future::Future::poll(step.as_mut(), &mut cx);
            }
            connect("memory:").unwrap_err();
            // The runtime is not recognized, but there is no panic.
            tokio::task::unconstrained(async { takes_locks() }).await;
        };
        runtime.block_on(refused);
    }
}

#[test]
fn an_error_of_the_url_is_returned_unchanged() {
    let error = connect("memory:?dlock.nope=1").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config(ConfigIssue::UnknownOption));
}

#[cfg(feature = "sqlite")]
#[test]
fn a_dropped_guard_is_released_after_the_last_handle() {
    let dir = tempfile::TempDir::new().unwrap();
    let url = format!("sqlite:{}?dlock.create_schema=true", dir.path().join("locks.db").display());
    let locks = connect(&url).unwrap();
    let guard = locks.mutex("n").unwrap().lock().unwrap();
    drop(locks);
    guard.check().unwrap();
    drop(guard);
    let others = connect(&url).unwrap();
    // Much less than the lease, after which the lock would be free in any case.
    others.mutex("n").unwrap().lock_timeout(Duration::from_secs(15)).unwrap().release().unwrap();
}
