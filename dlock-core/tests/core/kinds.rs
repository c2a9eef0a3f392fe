//! The kinds of lock over the memory backend.

#![expect(clippy::disallowed_methods, reason = "tests start tasks of their own")]

use crate::support::{Faulty, millis, secs};
use dlock_core::*;

#[tokio::test(start_paused = true)]
async fn an_owner_enters_again_and_leaves_as_often() {
    let store = Faulty::new();
    let locks = Locks::new(store.clone()).unwrap();
    let lock = locks.reentrant("n").unwrap();
    let (me, you) = (Owner::new(), Owner::new());
    let outer = lock.lock_as(&me).await.unwrap();
    let inner = locks.reentrant("n").unwrap().lock_as(&me).await.unwrap();
    assert_eq!(outer.token(), inner.token());
    assert_eq!((lock.hold_count(&me), lock.hold_count(&you)), (2, 0));
    assert!(lock.try_lock_as(&you).await.unwrap().is_none());
    assert!(locks.mutex("n").unwrap().try_lock().await.unwrap().is_none());
    assert_eq!(outer.release().await.unwrap(), Released::Released);
    assert!(lock.try_lock_as(&you).await.unwrap().is_none());
    assert_eq!(inner.release().await.unwrap(), Released::Released);
    assert_eq!(lock.hold_count(&me), 0);
    let yours = lock.try_lock_as(&you).await.unwrap().unwrap();
    assert!(yours.check().is_ok());
}

#[tokio::test(start_paused = true)]
async fn an_owner_enters_with_other_options() {
    let locks = Locks::new(Faulty::new()).unwrap();
    let me = Owner::new();
    let outer = locks.reentrant("n").unwrap().lock_as(&me).await.unwrap();
    let options = LockOptions::new();
    for other in [
        options.with_wait(secs(1)),
        options.with_lease(secs(7)),
        options.with_renew(Renew::Never),
        options.with_lock_delay(secs(2)),
    ] {
        let view = locks.with_options(other).unwrap().reentrant("n").unwrap();
        assert_eq!(view.hold_count(&me), 1, "{other:?}");
        let inner = view.try_lock_as(&me).await.unwrap().expect("it waits for its own caller");
        let again = view.lock_as(&me).await.unwrap();
        assert_eq!((inner.token(), again.token()), (outer.token(), outer.token()));
        assert!(view.try_lock_as(&Owner::new()).await.unwrap().is_none());
        for guard in [inner, again] {
            assert_eq!(guard.release().await.unwrap(), Released::Released);
        }
    }
    // Any view may enter first, and any of the guards may be the last.
    let view = locks.with_options(options.with_wait(secs(1))).unwrap().reentrant("n").unwrap();
    let inner = view.lock_as(&me).await.unwrap();
    outer.release().await.unwrap();
    assert!(locks.mutex("n").unwrap().try_lock().await.unwrap().is_none());
    inner.release().await.unwrap();
    assert!(locks.mutex("n").unwrap().try_lock().await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn re_entry_fails_once_the_hold_is_lost() {
    let store = Faulty::new();
    let locks = Locks::new(store.clone()).unwrap();
    let lock = locks.reentrant("n").unwrap();
    let me = Owner::new();
    let outer = lock.lock_as(&me).await.unwrap();
    store.renew_fails.store(true, std::sync::atomic::Ordering::SeqCst);
    outer.lost().await;
    assert_eq!(lock.lock_as(&me).await.unwrap_err().kind(), ErrorKind::Lost);
    assert_eq!(outer.release().await.unwrap(), Released::AlreadyLost);
    assert!(lock.lock_as(&me).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn readers_share_and_a_downgraded_writer_joins_them() {
    let locks = Locks::new(Faulty::new()).unwrap();
    let rw = locks.rw("n").unwrap();
    let mut write = rw.write().lock().await.unwrap();
    let token = write.token();
    let reader = {
        let rw = rw.clone();
        tokio::spawn(async move { rw.read().lock().await })
    };
    tokio::time::sleep(millis(1)).await;
    let writer = {
        let rw = rw.clone();
        tokio::spawn(async move { rw.write().lock().await })
    };
    tokio::time::sleep(millis(1)).await;
    write.downgrade().await.unwrap();
    let reader = reader.await.unwrap().unwrap();
    assert_eq!(write.token(), token);
    assert_eq!(write.downgrade().await.unwrap_err().kind(), ErrorKind::Unsupported);
    tokio::time::sleep(secs(100)).await;
    assert!(!writer.is_finished());
    assert!(write.check().is_ok() && reader.check().is_ok());
    drop((write, reader));
    drop(writer.await.unwrap().unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_semaphore_counts_and_refuses_too_many_permits() {
    let locks = Locks::new(Faulty::new()).unwrap();
    let pool = locks.semaphore("n", 3).unwrap();
    let two = pool.acquire_many(2).await.unwrap();
    assert!(pool.try_acquire_many(2).await.unwrap().is_none());
    let one = pool.acquire().await.unwrap();
    assert!(one.token() > two.token());
    assert!(pool.try_acquire().await.unwrap().is_none());
    for (n, kind) in [(4, ConfigIssue::Permits), (0, ConfigIssue::Permits)] {
        assert_eq!(pool.acquire_many(n).await.unwrap_err().kind(), ErrorKind::Config(kind));
    }
    let other = locks.semaphore("n", 4).unwrap();
    let error = other.acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config(ConfigIssue::Capacity));
    assert!(error.to_string().contains("semaphore of 3 permits"), "{error}");
    let error = locks.mutex("n").unwrap().lock().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config(ConfigIssue::Capacity));
    assert!(locks.semaphore("n", 0).is_err());
}

#[tokio::test(start_paused = true)]
async fn a_multi_lock_takes_all_or_none() {
    let locks = Locks::new(Faulty::new()).unwrap();
    let multi = locks.multi(["b", "a", "b"]).unwrap();
    assert_eq!(multi.names().len(), 2);
    let guard = multi.lock().await.unwrap();
    let tokens = guard.tokens();
    assert_eq!(tokens.len(), 2);
    assert!(tokens.iter().all(|(_, token)| *token <= guard.token()));
    assert!(locks.mutex("a").unwrap().try_lock().await.unwrap().is_none());
    assert!(locks.multi(["c", "a"]).unwrap().try_lock().await.unwrap().is_none());
    assert!(locks.mutex("c").unwrap().try_lock().await.unwrap().is_some());
    assert_eq!(guard.release().await.unwrap(), Released::Released);
    assert!(locks.inspect("a").await.unwrap().is_free());
    assert!(locks.multi(Vec::<&str>::new()).is_err());
    let names = |n: u32| (0..n).map(|i| format!("many/{i}"));
    locks.multi(names(1000)).unwrap().lock().await.unwrap().release().await.unwrap();
    let error = locks.multi(names(1001)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("at most 1000"), "{error}");
}

#[tokio::test]
async fn each_client_of_a_multi_lock_acquires_its_own_locks() {
    let store = Memory::new();
    let [one, two] = ["one", "two"]
        .map(|note| Locks::new(Noted::new(store.clone(), Note::new(note).unwrap())).unwrap());
    let parts = [("b", &two), ("a", &one), ("c", &two)];
    let locks = parts.map(|(name, locks)| locks.mutex(name).unwrap());
    let guard = MultiMutex::across(locks).unwrap().lock().await.unwrap();
    assert_eq!(guard.tokens().len(), 3);
    for (name, by) in [("a", "one"), ("b", "two"), ("c", "two")] {
        let note = one.inspect(name).await.unwrap().holders[0].note.clone().unwrap();
        assert_eq!(note.as_str(), by, "{name}");
    }
}

#[tokio::test]
async fn multi_locks_in_opposite_orders_do_not_deadlock() {
    let (one, two) = (Memory::new(), Memory::new());
    let mut tasks = Vec::new();
    for i in 0..8 {
        let one = Locks::new(one.clone()).unwrap();
        let two = Locks::new(two.clone()).unwrap();
        tasks.push(tokio::spawn(async move {
            let names = if i % 2 == 0 { ["a", "b", "c"] } else { ["c", "b", "a"] };
            for _ in 0..100 {
                let within = one.multi(names).unwrap();
                within.lock_timeout(secs(20)).await.unwrap().release().await.unwrap();
                let locks = [
                    two.mutex("x").unwrap(),
                    one.mutex(names[0]).unwrap(),
                    one.mutex("x").unwrap(),
                ];
                let across = MultiMutex::across(locks).unwrap();
                let guard = across.lock_timeout(secs(20)).await.unwrap();
                assert_eq!(guard.tokens().len(), 3);
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_part_is_the_loss_of_the_multi_lock() {
    let store = Faulty::new();
    let locks = Locks::new(store.clone()).unwrap();
    let guard = locks.multi(["a", "b"]).unwrap().lock().await.unwrap();
    let held = locks.inspect("b").await.unwrap().holders[0].claim;
    let claim = Claim::new(LockName::new("b").unwrap(), held);
    store.release(&claim).await.unwrap();
    assert_eq!(guard.lost().await, Ended::Revoked);
    assert!(guard.check().unwrap_err().to_string().contains("\"b\""));
    assert_eq!(guard.release().await.unwrap(), Released::AlreadyLost);
    assert!(locks.inspect("a").await.unwrap().is_free());
}

#[tokio::test(start_paused = true)]
async fn providers_and_locks_work_behind_dyn() {
    let locks = Locks::new(Faulty::new()).unwrap();
    let provider: &dyn LockProvider = &locks;
    let lock: Box<dyn Lock> = provider.mutex("n").unwrap();
    assert!(lock.with(|token| async move { token.get() > 0 }).await.unwrap());
    assert_eq!(lock.name().as_str(), "n");
    let guard = provider.rw("r").unwrap().read().lock().await.unwrap();
    assert_eq!(guard.name().as_str(), "r");
    assert!(provider.semaphore("s", 2).unwrap().acquire().await.is_ok());
    assert!(provider.fair("f").unwrap().try_lock().await.unwrap().is_some());
    assert!(provider.multi(&["x", "y"]).unwrap().lock().await.is_ok());
    let me = Owner::new();
    assert!(provider.reentrant("e").unwrap().lock_as(&me).await.is_ok());
    assert!(provider.mutex("").is_err());
}
