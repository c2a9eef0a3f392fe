//! The lock-delay: no grant until it has passed after an expiry.

#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests, and their helpers")]

use std::sync::{Arc, atomic::Ordering};

use crate::support::{Faulty, secs};
use dlock_core::*;

/// A lease of 10 s with a lock-delay of 5 s.
fn delayed() -> LockOptions {
    LockOptions::new().with_lease(secs(10)).with_lock_delay(secs(5))
}

fn locks(store: &Arc<Faulty>, options: LockOptions) -> Locks {
    Locks::new(store.clone()).unwrap().with_options(options).unwrap()
}

#[tokio::test(start_paused = true)]
async fn after_an_expiry_the_delay_bars_other_holders() {
    for fails in [false, true] {
        let store = Faulty::new();
        let renew = if fails { Renew::Auto } else { Renew::Never };
        let mine = locks(&store, delayed().with_renew(renew));
        store.renew_fails.store(fails, Ordering::SeqCst);
        let begin = tokio::time::Instant::now();
        let guard = mine.mutex("n").unwrap().lock().await.unwrap();
        // Another client, and a task of the same client.
        let waiting = [Locks::new(store.inner.clone()).unwrap(), mine.clone()].map(|locks| {
            tokio::spawn(async move {
                let next = locks.mutex("n").unwrap().lock().await.unwrap();
                let at = begin.elapsed();
                next.release().await.unwrap();
                at
            })
        });
        assert!(guard.remaining() < secs(10), "{:?}", guard.remaining());
        assert_eq!(guard.lost().await, Ended::Expired);
        assert!(begin.elapsed() < secs(10), "{:?}", begin.elapsed());
        for next in waiting {
            let at = next.await.unwrap();
            assert!(at >= secs(15), "let in after {at:?}");
        }
        assert_eq!(guard.release().await.unwrap(), Released::AlreadyLost);
    }
}

#[tokio::test(start_paused = true)]
async fn a_renewed_lock_has_the_delay_behind_each_lease() {
    let store = Faulty::new();
    let mine = locks(&store, delayed());
    let guard = mine.mutex("n").unwrap().lock().await.unwrap();
    for _ in 0..50 {
        tokio::time::sleep(secs(1)).await;
        let held = mine.inspect("n").await.unwrap().holders[0].remaining;
        assert_eq!(guard.state(), GuardState::Held);
        assert!(held >= guard.remaining() + secs(5), "{held:?}, {:?}", guard.remaining());
        assert!(guard.remaining() < secs(10) && held <= secs(15), "{held:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_delay_outlasts_a_limited_renewal_and_a_downgrade() {
    let store = Faulty::new();
    let begin = tokio::time::Instant::now();
    let mine = locks(&store, delayed().with_renew(Renew::For(secs(25))));
    let mut guard = mine.rw("n").unwrap().write().lock().await.unwrap();
    tokio::time::sleep(secs(7)).await;
    guard.downgrade().await.unwrap();
    let held = mine.inspect("n").await.unwrap().holders[0].remaining;
    assert!(held >= guard.remaining() + secs(5), "{held:?}, {:?}", guard.remaining());
    assert_eq!(guard.lost().await, Ended::Expired);
    assert!(begin.elapsed() < secs(25), "{:?}", begin.elapsed());
    let other = Locks::new(store.inner.clone()).unwrap();
    let _next = other.mutex("n").unwrap().lock().await.unwrap();
    assert!(begin.elapsed() >= secs(29), "let in after {:?}", begin.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_release_and_a_drop_free_at_once() {
    let store = Faulty::new();
    let (mine, other) =
        (locks(&store, delayed().with_renew(Renew::Never)), locks(&store, delayed()));
    let other = other.mutex("n").unwrap();
    for by_drop in [false, true] {
        for lost in [false, true] {
            let guard = mine.mutex("n").unwrap().lock().await.unwrap();
            if lost {
                guard.lost().await;
                assert!(other.try_lock().await.unwrap().is_none());
            }
            if by_drop {
                drop(guard);
            } else {
                guard.release().await.unwrap();
            }
            assert!(other.try_lock().await.unwrap().is_some(), "{by_drop}, {lost}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn work_that_is_dropped_with_its_lock_leaves_the_delay_behind() {
    let store = Faulty::new();
    let mine = locks(&store, delayed().with_renew(Renew::Never));
    let (one, two) = (mine.mutex("a").unwrap(), mine.multi(["b", "c"]).unwrap());
    let begin = tokio::time::Instant::now();
    let (one, two) = tokio::join!(
        one.with(|_| std::future::pending::<()>()),
        two.with(|_| std::future::pending::<()>())
    );
    assert!(one.is_err() && two.is_err());
    let other = Locks::new(store.inner.clone()).unwrap();
    for name in ["a", "b", "c"] {
        assert!(other.mutex(name).unwrap().try_lock().await.unwrap().is_none(), "{name}");
    }
    for name in ["a", "b", "c"] {
        other.mutex(name).unwrap().lock().await.unwrap().release().await.unwrap();
    }
    assert!(begin.elapsed() >= secs(15), "{:?}", begin.elapsed());
    mine.shutdown(secs(1)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_longest_lease_of_a_store_includes_the_lock_delay() {
    let store = Faulty::new();
    *store.longest_lease.lock() = Some(secs(8));
    let mine = locks(&store, delayed());
    let alone = mine.mutex("a").unwrap().lock().await.unwrap();
    let several = mine.multi(["b", "c"]).unwrap().lock().await.unwrap();
    for _ in 0..30 {
        assert!(alone.remaining() < secs(3) && several.remaining() < secs(3));
        assert!(alone.check().is_ok() && several.check().is_ok());
        tokio::time::sleep(secs(1)).await;
    }
    let long = locks(&store, delayed().with_lock_delay(secs(8)));
    for taken in
        [long.mutex("d").unwrap().lock().await, long.multi(["e", "f"]).unwrap().lock().await]
    {
        let error = taken.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config(ConfigIssue::Lease));
        assert!(error.to_string().contains("lock-delay of 8s"), "{error}");
    }
}
