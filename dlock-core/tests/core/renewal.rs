//! Leases: renewal in batches, and losses in time.

#![expect(clippy::disallowed_methods, reason = "tests start tasks of their own")]

use std::sync::{Arc, atomic::Ordering};

use crate::support::{Faulty, millis, secs};
use dlock_core::*;

#[tokio::test(start_paused = true)]
async fn a_held_lock_outlives_its_lease() {
    let store = Faulty::new();
    let locks = Locks::new(store.clone()).unwrap();
    let guard = locks.mutex("n").unwrap().lock().await.unwrap();
    for _ in 0..20 {
        tokio::time::sleep(secs(17)).await;
        assert_eq!(guard.state(), GuardState::Held);
        assert!(guard.remaining() > secs(10), "{:?}", guard.remaining());
    }
    let other = Locks::new(store).unwrap();
    assert!(other.mutex("n").unwrap().try_lock().await.unwrap().is_none());
    assert_eq!(guard.release().await.unwrap(), Released::Released);
    assert!(other.mutex("n").unwrap().try_lock().await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn an_unreachable_shard_affects_no_other_locks() {
    let store = Faulty::new();
    *store.unreachable.lock() = Some("app/away");
    let store = Prefixed::new(store, "app/").unwrap();
    let locks = Locks::new(store).unwrap();
    let here = locks.mutex("here").unwrap().lock().await.unwrap();
    let away = locks.mutex("away").unwrap().lock().await.unwrap();
    tokio::time::sleep(secs(100)).await;
    assert_eq!((here.state(), away.state()), (GuardState::Held, GuardState::Lost));
}

#[tokio::test(start_paused = true)]
async fn renewals_travel_in_batches() {
    let store = Faulty::new();
    let locks = Locks::new(store.clone()).unwrap();
    let mut guards = Vec::new();
    for i in 0..1200 {
        guards.push(locks.fair(format!("n{i}")).unwrap().lock().await.unwrap());
    }
    tokio::time::sleep(secs(60)).await;
    assert!(guards.iter().all(|guard| guard.check().is_ok()));
    assert_eq!(store.largest_batch.load(Ordering::SeqCst), 500);
    let calls = store.renew_calls.load(Ordering::SeqCst);
    assert!((15..=24).contains(&calls), "{calls} calls for six rounds of 1200 renewals");
}

#[tokio::test(start_paused = true)]
async fn locks_of_different_leases_are_each_renewed_in_time() {
    let locks = Locks::new(Faulty::new()).unwrap();
    let mut guards = Vec::new();
    for (i, lease) in [secs(3600), millis(100), secs(30), millis(350)].into_iter().enumerate() {
        let locks = locks.with_options(LockOptions::new().with_lease(lease)).unwrap();
        guards.push(locks.mutex(format!("n{i}")).unwrap().lock().await.unwrap());
        tokio::time::sleep(millis(130)).await;
    }
    tokio::time::sleep(secs(100)).await;
    assert!(guards.iter().all(|guard| guard.state() == GuardState::Held));
}

#[tokio::test(start_paused = true)]
async fn a_failed_renewal_leaves_doubt_and_a_later_one_removes_it() {
    let store = Faulty::new();
    let locks = Locks::new(store.clone()).unwrap();
    let guard = locks.mutex("n").unwrap().lock().await.unwrap();
    store.renew_fails.store(true, Ordering::SeqCst);
    tokio::time::sleep(secs(15)).await;
    assert_eq!(guard.state(), GuardState::Doubtful);
    store.renew_fails.store(false, Ordering::SeqCst);
    tokio::time::sleep(secs(5)).await;
    assert_eq!(guard.state(), GuardState::Held);
    tokio::time::sleep(secs(60)).await;
    assert!(guard.check().is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_loss_is_reported_before_the_next_grant() {
    for hang in [false, true] {
        let store = Faulty::new();
        let locks = Locks::new(store.clone()).unwrap();
        let other = Locks::new(store.inner.clone()).unwrap();
        let guard = locks.mutex("n").unwrap().lock().await.unwrap();
        let (first, lost) = (guard.token(), guard.lost());
        store.renew_fails.store(!hang, Ordering::SeqCst);
        store.renew_hangs.store(hang, Ordering::SeqCst);
        let next = tokio::spawn(async move {
            let guard = other.mutex("n").unwrap().lock().await.unwrap();
            (tokio::time::Instant::now(), guard)
        });
        let ended = lost.await;
        let told = tokio::time::Instant::now();
        assert_eq!(ended, Ended::Expired);
        assert_eq!(guard.check().unwrap_err().kind(), ErrorKind::Lost);
        assert_eq!(guard.remaining(), std::time::Duration::ZERO);
        let (taken, next) = next.await.unwrap();
        assert!(told < taken, "told {:?} after the next holder", told - taken);
        assert!(next.token() > first);
        assert_eq!(guard.release().await.unwrap(), Released::AlreadyLost);
        assert!(next.check().is_ok());
    }
}

#[tokio::test(start_paused = true)]
async fn a_revoked_claim_is_lost_with_the_next_renewal() {
    let store = Faulty::new();
    let locks = Locks::new(store.clone()).unwrap();
    let guard = locks.mutex("n").unwrap().lock().await.unwrap();
    let claim = holder(&locks, "n").await.unwrap();
    store.release(&claim).await.unwrap();
    assert_eq!(guard.lost().await, Ended::Revoked);
    assert_eq!(guard.release().await.unwrap(), Released::AlreadyLost);
}

/// Returns the claim that holds a lock.
async fn holder(locks: &Locks, name: &str) -> Result<Claim, Error> {
    let state = locks.inspect(name).await?;
    Ok(Claim::new(LockName::new(name)?, state.holders[0].claim))
}

#[tokio::test(start_paused = true)]
async fn a_loss_reported_by_the_store_is_reported_at_once() {
    let store = Faulty::new();
    let locks = Locks::new(store.clone()).unwrap();
    let [gone, stays] = ["gone", "stays"].map(|name| locks.mutex(name).unwrap());
    let (gone, stays) = (gone.lock().await.unwrap(), stays.lock().await.unwrap());
    let claim = holder(&locks, "gone").await.unwrap();
    store.release(&claim).await.unwrap();
    assert!(store.events.send(StoreEvent::Ended(claim.id)) > 0);
    assert_eq!(gone.lost().await, Ended::Revoked);
    assert_eq!(store.renew_calls.load(Ordering::SeqCst), 0, "a renewal has told it");
    assert!(gone.check().is_err() && stays.check().is_ok());
}

#[tokio::test(start_paused = true)]
async fn missed_loss_events_are_found_by_renewal() {
    let store = Faulty::new();
    let locks = Locks::new(store.clone()).unwrap();
    let guard = locks.mutex("gone").unwrap().lock().await.unwrap();
    let claim = holder(&locks, "gone").await.unwrap();
    store.release(&claim).await.unwrap();
    assert!(store.events.send(StoreEvent::Ended(claim.id)) > 0);
    for _ in 0..10 {
        assert!(store.events.send(StoreEvent::Ended(ClaimId::random())) > 0);
    }
    assert_eq!(guard.lost().await, Ended::Revoked);
}

#[tokio::test(start_paused = true)]
async fn no_local_deadline_exceeds_the_longest_lease_of_the_store() {
    let store = Faulty::new();
    *store.longest_lease.lock() = Some(secs(6));
    let locks = Locks::new(store.clone()).unwrap();
    let long = LockOptions::new().with_lease(secs(60)).with_renew(Renew::Never);
    let never = locks.with_options(long).unwrap();
    let alone = never.mutex("a").unwrap().lock().await.unwrap();
    let several = never.multi(["b", "c"]).unwrap().lock().await.unwrap();
    assert!(alone.remaining() <= secs(6) && several.remaining() <= secs(6));
    tokio::time::sleep(secs(7)).await;
    assert!(alone.check().is_err() && several.check().is_err());
    // Shorter leases are not changed, and all are renewed in time.
    let brief = locks.with_options(LockOptions::new().with_lease(secs(3))).unwrap();
    let (brief, usual) =
        (brief.mutex("d").unwrap().lock().await, locks.mutex("e").unwrap().lock().await);
    tokio::time::sleep(secs(60)).await;
    assert!(brief.unwrap().check().is_ok() && usual.unwrap().check().is_ok());
}

#[tokio::test(start_paused = true)]
async fn renewal_ends_where_the_options_say() {
    let store = Faulty::new();
    let locks = Locks::new(store.clone()).unwrap();
    let start = tokio::time::Instant::now();
    for (renew, at_least, at_most) in
        [(Renew::Never, secs(29), secs(30)), (Renew::For(secs(100)), secs(95), secs(100))]
    {
        let locks = locks.with_options(LockOptions::new().with_renew(renew)).unwrap();
        let guard = locks.mutex(format!("{renew:?}")).unwrap().lock().await.unwrap();
        let before = start.elapsed();
        assert_eq!(guard.lost().await, Ended::Expired);
        let held = start.elapsed() - before;
        assert!(held >= at_least && held <= at_most, "{renew:?} held {held:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn run_drops_the_work_when_the_lock_is_lost() {
    struct Dropped(Arc<std::sync::atomic::AtomicBool>);
    impl Drop for Dropped {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }
    let store = Faulty::new();
    let locks = Locks::new(store.clone()).unwrap();
    let lock = locks.mutex("n").unwrap();
    let dropped = Arc::new(std::sync::atomic::AtomicBool::new(false));
    store.renew_fails.store(true, Ordering::SeqCst);
    let mark = Dropped(Arc::clone(&dropped));
    let error = lock
        .with(|_token| async move {
            let _mark = mark;
            tokio::time::sleep(secs(1000)).await;
        })
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost);
    assert!(dropped.load(Ordering::SeqCst));
}

#[tokio::test(start_paused = true)]
async fn shutdown_waits_for_guards_and_refuses_new_ones() {
    let store = Faulty::new();
    store.slow.store(true, Ordering::SeqCst);
    let locks = Locks::new(store.clone()).unwrap();
    let guard = locks.mutex("n").unwrap().lock().await.unwrap();
    let error = locks.shutdown(millis(100)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert!(error.to_string().contains("locks still held: 1"), "{error}");
    drop(guard);
    locks.shutdown(secs(1)).await.unwrap();
    assert!(store.inspect(&LockName::new("n").unwrap()).await.unwrap().is_free());
    let error = locks.mutex("n").unwrap().lock().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config(ConfigIssue::ShutDown));
}

#[test]
fn guards_and_locks_survive_their_runtime_without_a_panic() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let error = Locks::new(Memory::new()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config(ConfigIssue::Runtime));

    let store = Memory::new();
    let first = runtime();
    let (locks, guard) = first.block_on(async {
        let locks = Locks::new(store.clone()).unwrap();
        let guard = locks.mutex("n").unwrap().lock().await.unwrap();
        (locks, guard)
    });
    drop(first);
    assert!(guard.check().is_ok());
    drop(guard);
    runtime().block_on(async {
        let error = locks.mutex("n").unwrap().lock().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config(ConfigIssue::Runtime));
        let locks = Locks::new(store).unwrap();
        assert!(locks.mutex("n").unwrap().try_lock().await.unwrap().is_some());
    });
}

#[tokio::test(start_paused = true)]
async fn locks_that_are_due_together_are_released_in_any_order() {
    let locks = Locks::new(Faulty::new()).unwrap();
    let mut guards = Vec::new();
    for i in 0..300 {
        let options = LockOptions::new().with_lease(millis(1000 + i % 7));
        let lock = locks.with_options(options).unwrap().fair(format!("n{i}")).unwrap();
        guards.push(lock.lock().await.unwrap());
    }
    // Every seventh one, so that the first, the last and those in between take turns.
    for begin in 0..7 {
        tokio::time::sleep(secs(5)).await;
        let leaves = |at: usize| (at * 37) % 7 == begin;
        for (at, guard) in std::mem::take(&mut guards).into_iter().enumerate() {
            assert_eq!(guard.state(), GuardState::Held);
            if leaves(at) {
                assert_eq!(guard.release().await.unwrap(), Released::Released);
            } else {
                guards.push(guard);
            }
        }
        assert_eq!(locks.health(secs(1)).await.held, guards.len());
    }
    drop(guards);
    locks.shutdown(secs(1)).await.unwrap();
}
