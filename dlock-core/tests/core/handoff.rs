//! Local hand-off: order, turns of other processes, and dropped tasks.

#![expect(clippy::disallowed_methods, reason = "tests start tasks of their own")]

use std::{
    collections::BTreeSet,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::Poll,
    time::Duration,
};

use crate::support::{Faulty, millis, secs};
use dlock_core::*;
use futures_util::poll;
use tokio::sync::oneshot;

#[tokio::test(start_paused = true)]
async fn each_local_hand_off_has_a_larger_token() {
    let store = Faulty::new();
    let locks = Locks::new(store.clone()).unwrap();
    let tokens = Arc::new(parking_lot::Mutex::new(Vec::new()));
    let mut tasks = Vec::new();
    for _ in 0..50 {
        let (lock, tokens) = (locks.mutex("n").unwrap(), Arc::clone(&tokens));
        tasks.push(tokio::spawn(async move {
            for _ in 0..40 {
                let guard = lock.lock().await.unwrap();
                tokens.lock().push(guard.token());
                tokio::task::yield_now().await;
                guard.release().await.unwrap();
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    let tokens = std::mem::take(&mut *tokens.lock());
    assert_eq!(tokens.len(), 2000);
    assert!(tokens.is_sorted());
    assert_eq!(tokens.iter().collect::<BTreeSet<_>>().len(), 2000);
    let acquires = store.acquires.load(Ordering::SeqCst);
    assert!(acquires <= 20, "{acquires} acquires of the store for 2000 holds");
    assert!(locks.inspect("n").await.unwrap().is_free());
}

/// A store, a lock over it whose next claim reserves tokens for hand-offs, and two clients, of
/// which the first has the lock.
async fn warm() -> Result<(Arc<Faulty>, Mutex, Locks, Locks), Error> {
    let store = Faulty::new();
    let (one, two) = (Locks::new(store.clone())?, Locks::new(store.clone())?);
    let lock = one.mutex("n")?;
    let guard = lock.lock().await?;
    assert!(poll!(pin!(lock.lock())).is_pending());
    let _ = guard.release().await?;
    Ok((store, lock, one, two))
}

/// No request to the store follows a hand-off by itself.
#[tokio::test(start_paused = true)]
async fn work_is_not_ok_if_its_lock_was_revoked_before_a_hand_off() {
    for how in ["with", "finish", "reentrant"] {
        let (_store, lock, one, two) = warm().await.unwrap();
        let mut next = pin!(lock.lock());
        let work = async {
            assert!(poll!(next.as_mut()).is_pending());
            assert_eq!(two.force_release("n").await.unwrap().len(), 1);
            7
        };
        let ran = match how {
            "with" => lock.with(|_| work).await,
            _ => {
                let guard = match how {
                    "finish" => lock.lock().await,
                    _ => one.reentrant("n").unwrap().lock_as(&Owner::new()).await,
                };
                let output = work.await;
                guard.unwrap().finish(output).await
            }
        };
        let error = ran.expect_err(how);
        assert_eq!(error.kind(), ErrorKind::Lost, "{how}");
        assert_eq!(error.take_output(), Some(7), "{how}");
        // The next task does not keep the lost lock.
        let guard = next.await.unwrap();
        guard.check().unwrap();
        assert_eq!(two.inspect("n").await.unwrap().holders.len(), 1, "{how}");
    }
}

/// The task that gets the lock does not wait until the store has confirmed the hand-off.
#[tokio::test(start_paused = true)]
async fn work_waits_for_the_confirmation_of_its_hand_off() {
    for released in [false, true] {
        let (store, lock, ..) = warm().await.unwrap();
        let (ends, end) = oneshot::channel();
        let mut first = pin!(lock.with(|_| async { end.await.unwrap() }));
        assert!(poll!(first.as_mut()).is_pending());
        let mut next = pin!(lock.lock());
        assert!(poll!(next.as_mut()).is_pending());
        ends.send(7).unwrap();
        assert!(poll!(first.as_mut()).is_pending());
        let guard = next.await.unwrap();
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        assert!(poll!(first.as_mut()).is_pending(), "it is not confirmed yet");
        if released {
            // The answer to the release confirms the hand-off, without a renewal.
            guard.release().await.unwrap();
            assert_eq!(poll!(first.as_mut()).map(Result::unwrap), Poll::Ready(7));
            assert_eq!(store.renew_calls.load(Ordering::SeqCst), 0);
        } else {
            assert_eq!(first.await.unwrap(), 7);
            guard.check().unwrap();
            guard.release().await.unwrap();
            assert_eq!(store.renew_calls.load(Ordering::SeqCst), 1);
        }
    }
}

/// Without this, on a server, the tasks that wait for a confirmation would return too late, and the
/// lock would go to the store and back.
#[tokio::test(start_paused = true)]
async fn a_renewal_confirms_work_when_no_more_tasks_wait() {
    for waiting in 1..4 {
        let (store, lock, ..) = warm().await.unwrap();
        store.remote.store(true, Ordering::SeqCst);
        let renewals = || store.renew_calls.load(Ordering::SeqCst);
        let began = tokio::time::Instant::now();
        let (ends, end) = oneshot::channel();
        let mut first = pin!(lock.with(|_| async { end.await.unwrap() }));
        assert!(poll!(first.as_mut()).is_pending());
        let mut others: Vec<_> = (0..waiting).map(|_| Box::pin(lock.lock())).collect();
        for other in &mut others {
            assert!(poll!(other).is_pending());
        }
        ends.send(7).unwrap();
        assert!(poll!(first.as_mut()).is_pending());
        // The task that has the lock now keeps it.
        let guard = others.remove(0).await.unwrap();
        tokio::time::sleep(millis(1)).await;
        // One task waits for its confirmation, and the others for the lock.
        let early = others.len() <= 1;
        assert_eq!(renewals(), usize::from(early), "{waiting}");
        assert_eq!(poll!(first.as_mut()).is_ready(), early, "{waiting}");
        if !early {
            assert_eq!(first.await.unwrap(), 7);
            assert!(began.elapsed() >= millis(10), "{waiting}");
            assert_eq!(renewals(), 1, "{waiting}");
        }
        guard.check().unwrap();
    }
}

/// While tasks contend, the release at the end of each claim confirms all work that ended before. A
/// holder that continues for longer costs one renewal, for any number of waiting tasks.
#[tokio::test(start_paused = true)]
async fn confirmed_work_costs_at_most_one_renewal_per_claim() {
    for last_takes in [Duration::ZERO, secs(1)] {
        let (store, _, one, _) = warm().await.unwrap();
        let before = store.acquires.load(Ordering::SeqCst);
        let mut tasks = Vec::new();
        for task in 0..50 {
            let lock = one.mutex("n").unwrap();
            let takes = if task == 49 { last_takes } else { Duration::ZERO };
            tasks.push(tokio::spawn(async move {
                let work = async {
                    tokio::task::yield_now().await;
                    tokio::time::sleep(takes).await;
                };
                lock.with(|_| work).await
            }));
        }
        for task in tasks {
            task.await.unwrap().unwrap();
        }
        let renewals = store.renew_calls.load(Ordering::SeqCst);
        assert_eq!(renewals, usize::from(!last_takes.is_zero()));
        assert!(store.acquires.load(Ordering::SeqCst) - before <= 2, "they were handed off");
    }
}

#[tokio::test]
async fn another_process_gets_its_turn() {
    let store = Memory::new();
    let (hot, other) = (Locks::new(store.clone()).unwrap(), Locks::new(store.clone()).unwrap());
    let passes = Arc::new(AtomicUsize::new(0));
    let mut tasks = Vec::new();
    for _ in 0..16 {
        let (lock, passes) = (hot.mutex("n").unwrap(), Arc::clone(&passes));
        tasks.push(tokio::spawn(async move {
            loop {
                let _guard = lock.lock().await.unwrap();
                passes.fetch_add(1, Ordering::SeqCst);
                tokio::task::yield_now().await;
            }
        }));
    }
    let lock = other.mutex("n").unwrap();
    for _ in 0..20 {
        while !store.inspect(lock.name()).await.unwrap().waiters.is_empty() {
            tokio::task::yield_now().await;
        }
        let before = passes.load(Ordering::SeqCst);
        let guard = lock.lock_timeout(secs(20)).await.unwrap();
        let bypass = passes.load(Ordering::SeqCst) - before;
        // The claim before it in the queue, and one that may have been granted when it joined.
        assert!(bypass <= 2 * 32_768 + 2, "bypassed {bypass} times");
        guard.release().await.unwrap();
    }
    tasks.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test(start_paused = true)]
async fn dropped_waiters_are_skipped_and_dropped_leaders_are_replaced() {
    let store = Faulty::new();
    store.slow.store(true, Ordering::SeqCst);
    let locks = Locks::new(store.clone()).unwrap();
    let lock = locks.mutex("n").unwrap();
    // The leader is dropped while its claim is in flight.
    let leader = tokio::time::timeout(millis(3), lock.lock()).await;
    assert!(leader.is_err());
    let guard = lock.lock_timeout(secs(1)).await.unwrap();
    // Waiters are dropped in the process's queue.
    for _ in 0..3 {
        assert!(tokio::time::timeout(millis(3), lock.lock()).await.is_err());
    }
    let next = {
        let lock = lock.clone();
        tokio::spawn(async move { lock.lock().await.unwrap() })
    };
    tokio::task::yield_now().await;
    drop(guard);
    let guard = next.await.unwrap();
    guard.release().await.unwrap();
    tokio::time::sleep(secs(1)).await;
    assert!(locks.inspect("n").await.unwrap().is_free());
}

#[tokio::test(start_paused = true)]
async fn the_next_claim_is_on_its_way_before_the_release_is_answered() {
    let store = Faulty::new();
    let locks = Locks::new(store.clone()).unwrap();
    let lock = locks.mutex("n").unwrap();
    // With one token, the lock can't be handed off.
    let guard = lock.lock().await.unwrap();
    let next = tokio::spawn(async move { lock.lock().await.unwrap() });
    tokio::task::yield_now().await;
    assert_eq!(store.acquires.load(Ordering::SeqCst), 1);
    store.slow.store(true, Ordering::SeqCst);
    let release = tokio::spawn(guard.release());
    while store.acquires.load(Ordering::SeqCst) == 1 {
        tokio::task::yield_now().await;
    }
    assert!(!release.is_finished(), "the claim has waited for the answer to the release");
    assert_eq!(release.await.unwrap().unwrap(), Released::Released);
    let guard = next.await.unwrap();
    assert_eq!(guard.release().await.unwrap(), Released::Released);
    assert!(locks.inspect("n").await.unwrap().is_free());
}

/// If the busiest process never released the lock, a process that tries at random times would never
/// get it.
#[tokio::test(start_paused = true)]
async fn without_a_store_queue_other_processes_have_a_turn() {
    for unordered in [false, true] {
        let store = Faulty::new();
        store.unordered.store(unordered, Ordering::SeqCst);
        store.slow.store(true, Ordering::SeqCst);
        let lock = Locks::new(store.clone()).unwrap().mutex("n").unwrap();
        let waiter = || {
            let lock = lock.clone();
            tokio::spawn(async move { lock.lock().await.unwrap() })
        };
        // With one token, the lock can't be handed off, so other processes have had their turn.
        let guard = lock.lock().await.unwrap();
        let next = waiter();
        tokio::task::yield_now().await;
        guard.release().await.unwrap();
        let guard = next.await.unwrap();
        // With a block of tokens, the lock is handed off until the limit of local hand-off.
        let (next, last) = (waiter(), waiter());
        tokio::task::yield_now().await;
        guard.release().await.unwrap();
        let guard = next.await.unwrap();
        tokio::time::sleep(millis(10)).await;
        let before = store.acquires.load(Ordering::SeqCst);
        guard.release().await.unwrap();
        tokio::time::sleep(millis(1)).await;
        let asked = store.acquires.load(Ordering::SeqCst) > before;
        assert_eq!(asked, !unordered, "within the turn of the others");
        last.await.unwrap().release().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn the_next_local_task_does_not_wait_for_a_lost_guard() {
    let store = Faulty::new();
    let locks = Locks::new(store.clone()).unwrap();
    let lock = locks.mutex("n").unwrap();
    let stale = lock.lock().await.unwrap();
    store.renew_fails.store(true, Ordering::SeqCst);
    let waiter = lock.lock_timeout(secs(60)).await.unwrap();
    assert!(stale.check().is_err());
    assert!(waiter.token() > stale.token());
    drop(stale);
    assert!(waiter.check().is_ok());
    assert_eq!(waiter.release().await.unwrap(), Released::Released);
}

#[tokio::test(start_paused = true)]
async fn an_error_of_the_local_leader_reaches_no_other_task() {
    let store = Faulty::new();
    let locks = Locks::new(store.clone()).unwrap();
    let lock = locks.mutex("n").unwrap();
    store.acquire_fails.store(1, Ordering::SeqCst);
    assert_eq!(lock.try_lock().await.unwrap_err().kind(), ErrorKind::Unavailable);
    store.acquire_fails.store(3, Ordering::SeqCst);
    let guard = lock.lock().await.unwrap();
    guard.release().await.unwrap();
    store.acquire_fails.store(usize::MAX, Ordering::SeqCst);
    let start = tokio::time::Instant::now();
    let error = lock.lock().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(start.elapsed() >= secs(30) && start.elapsed() < secs(33), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn an_uncontended_lock_returns_its_unused_tokens() {
    let store = Faulty::new();
    let locks = Locks::new(store.clone()).unwrap();
    let lock = locks.mutex("n").unwrap();
    let first = lock.lock().await.unwrap().token();
    let second = lock.lock().await.unwrap().token();
    assert!(second > first);
    assert!(second.get() - first.get() < 10, "{first} {second}");
}

#[tokio::test(start_paused = true)]
async fn waits_of_zero_and_for_ever() {
    let locks = Locks::new(Faulty::new()).unwrap();
    let lock = locks.mutex("n").unwrap();
    let guard = lock.lock_timeout(std::time::Duration::ZERO).await.unwrap();
    for lock in [locks.mutex("n").unwrap(), locks.without_handoff().mutex("n").unwrap()] {
        let error = lock.lock_timeout(std::time::Duration::ZERO).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout);
        let error = lock.lock_timeout(millis(1)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout);
    }
    let waiting = tokio::spawn(async move { lock.lock_timeout(std::time::Duration::MAX).await });
    tokio::time::sleep(secs(100_000)).await;
    drop(guard);
    drop(waiting.await.unwrap().unwrap());
}
