//! The token floor: raised before each acquire, and never undercut.

#![expect(clippy::unwrap_used, reason = "tests, and their helpers")]

use std::sync::{Arc, atomic::Ordering};

use crate::common::{Faulty, secs};
use dlock_core::*;

fn above(store: &Arc<Faulty>, floor: FencingToken) -> Locks {
    let options = LockOptions::new().with_token_floor(floor);
    Locks::new(Arc::clone(store)).unwrap().with_options(options).unwrap()
}

async fn token(locks: &Locks, name: &str) -> FencingToken {
    let guard = locks.mutex(name).unwrap().lock().await.unwrap();
    let token = guard.token();
    guard.release().await.unwrap();
    token
}

#[tokio::test(start_paused = true)]
async fn every_kind_has_tokens_above_it() {
    let store = Faulty::new();
    let plain = Locks::new(Arc::clone(&store)).unwrap();
    let mut floor = token(&plain, "n").await.plus(1 << 50);
    for kind in 0..6 {
        let locks = above(&store, floor);
        let guard = match kind {
            0 => locks.mutex("n").unwrap().lock().await,
            1 => locks.fair("n").unwrap().lock().await,
            2 => locks.rw("n").unwrap().read().lock().await,
            3 => locks.semaphore("n", 2).unwrap().acquire().await,
            4 => locks.reentrant("n").unwrap().lock_as(&Owner::new()).await,
            _ => locks.multi(["n", "m"]).unwrap().lock().await,
        };
        let guard = guard.unwrap();
        for (name, token) in guard.tokens() {
            assert!(token > floor, "{name}: {token:?} over {floor:?}");
        }
        guard.release().await.unwrap();
        let next = token(&plain, "n").await;
        assert!(next > floor, "{next:?} over {floor:?}");
        floor = next.plus(1 << 20);
    }
}

#[tokio::test(start_paused = true)]
async fn tasks_of_one_process_do_not_pass_it_on_from_below() {
    let store = Faulty::new();
    let plain = Locks::new(Arc::clone(&store)).unwrap();
    let first = plain.mutex("n").unwrap().lock().await.unwrap();
    let floor = first.token().plus(1 << 40);
    let locks = above(&store, floor);
    let mutex = locks.mutex("n").unwrap();
    let (next, released) = tokio::join!(mutex.lock(), async {
        tokio::time::sleep(secs(1)).await;
        first.release().await
    });
    released.unwrap();
    assert!(next.unwrap().token() > floor);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_away_is_asked_again_and_one_that_forgets_is_told_of() {
    let store = Faulty::new();
    let floor = FencingToken::new(1 << 50).unwrap();
    let locks = above(&store, floor);
    store.raise_fails.store(3, Ordering::SeqCst);
    assert!(token(&locks, "n").await > floor);
    store.raise_fails.store(1, Ordering::SeqCst);
    let error = locks.mutex("n").unwrap().try_lock().await.unwrap_err();
    assert_eq!((error.kind(), error.operation()), (ErrorKind::Unavailable, Some("raise_tokens")));

    store.forgets_floors.store(true, Ordering::SeqCst);
    let locks = above(&store, floor.plus(1 << 50));
    let several = locks.multi(["n", "m"]).unwrap();
    for taken in [locks.mutex("n").unwrap().lock().await, several.lock().await] {
        let error = taken.unwrap_err();
        assert!(error.to_string().contains("told to give out tokens above"), "{error}");
    }
    // What was granted has gone back.
    assert!(locks.inspect("n").await.unwrap().is_free());
    assert!(locks.inspect("m").await.unwrap().is_free());
}

mod outside {
    use super::*;

    #[tokio::test]
    async fn tokens_that_are_used_up_are_told_and_none_is_given_out_twice() {
        let store = Memory::new();
        let name = LockName::new("n").unwrap();
        let nearly = FencingToken::new(FencingToken::MAX.get() - 2).unwrap();
        store.raise_tokens(&name, nearly).await.unwrap();
        let locks = Locks::new(Arc::clone(&store)).unwrap();
        for token in [nearly.plus(1), FencingToken::MAX] {
            let last = locks.fair("n").unwrap().lock().await.unwrap();
            assert_eq!(last.token(), token);
            last.release().await.unwrap();
        }
        for _ in 0..3 {
            for error in [
                locks.fair("n").unwrap().lock_timeout(secs(60)).await.unwrap_err(),
                locks.mutex("n").unwrap().try_lock().await.unwrap_err(),
            ] {
                assert_eq!(error.kind(), ErrorKind::Config(ConfigIssue::Token));
                assert!(error.to_string().contains("no fencing token is left"), "{error}");
            }
        }
        // Nothing stays held by whom it was refused to.
        locks.shutdown(secs(60)).await.unwrap();
        assert!(store.inspect(&name).await.unwrap().is_free());
    }
}
