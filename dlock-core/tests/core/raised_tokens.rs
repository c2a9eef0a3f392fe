//! Raised tokens: every later grant is above them.

#![expect(clippy::unwrap_used, reason = "tests, and their helpers")]

use std::sync::atomic::Ordering;

use crate::support::{Faulty, secs};
use dlock_core::*;

async fn token(locks: &Locks, name: &str) -> FencingToken {
    let guard = locks.mutex(name).unwrap().lock().await.unwrap();
    let token = guard.token();
    guard.release().await.unwrap();
    token
}

#[tokio::test(start_paused = true)]
async fn every_kind_has_tokens_above_them() {
    let store = Faulty::new();
    let (locks, other) = (Locks::new(store.clone()).unwrap(), Locks::new(store.clone()).unwrap());
    let mut floor = token(&locks, "n").await.plus(1 << 50);
    for kind in 0..6 {
        locks.raise_tokens("n", floor).await.unwrap();
        locks.raise_tokens("m", floor).await.unwrap();
        let guard = match kind {
            0 => other.mutex("n").unwrap().lock().await,
            1 => other.fair("n").unwrap().lock().await,
            2 => other.rw("n").unwrap().read().lock().await,
            3 => other.semaphore("n", 2).unwrap().acquire().await,
            4 => other.reentrant("n").unwrap().lock_as(&Owner::new()).await,
            _ => other.multi(["n", "m"]).unwrap().lock().await,
        };
        let guard = guard.unwrap();
        for (name, token) in guard.tokens() {
            assert!(token > floor, "{name}: {token:?} over {floor:?}");
        }
        guard.release().await.unwrap();
        let next = token(&locks, "n").await;
        assert!(next > floor, "{next:?} over {floor:?}");
        floor = next.plus(1 << 20);
    }
}

#[tokio::test(start_paused = true)]
async fn raised_tokens_apply_to_the_next_holder_only() {
    let locks = Locks::new(Faulty::new()).unwrap();
    let mutex = locks.mutex("n").unwrap();
    let held = mutex.lock().await.unwrap();
    let (token, floor) = (held.token(), held.token().plus(1 << 40));
    let (next, ()) = tokio::join!(mutex.lock(), async {
        tokio::time::sleep(secs(1)).await;
        locks.raise_tokens("n", floor).await.unwrap();
        assert_eq!((held.token(), held.check().is_ok()), (token, true));
        held.release().await.unwrap();
    });
    assert!(next.unwrap().token() > floor);
}

#[tokio::test(start_paused = true)]
async fn readers_beside_a_reader_have_tokens_above_them() {
    let store = Faulty::new();
    let locks = Locks::new(store.clone()).unwrap();
    let rw = locks.rw("n").unwrap();
    let first = rw.read().lock().await.unwrap();
    let floor = first.token().plus(1 << 40);
    locks.raise_tokens("n", floor).await.unwrap();
    let second = rw.read().lock().await.unwrap();
    assert!(first.check().is_ok() && first.token() < floor && second.token() > floor);
}

#[tokio::test(start_paused = true)]
async fn raising_again_and_raising_to_less_change_nothing() {
    let locks = Locks::new(Faulty::new()).unwrap();
    let floor = FencingToken::new(1 << 50).unwrap();
    for above in [floor, floor, FencingToken::new(1).unwrap()] {
        locks.raise_tokens("n", above).await.unwrap();
        assert_eq!(locks.inspect("n").await.unwrap().last_token, Some(floor));
    }
    assert_eq!(token(&locks, "n").await, floor.plus(1));
}

#[tokio::test(start_paused = true)]
async fn an_unreachable_store_is_reported_and_can_be_retried() {
    let store = Faulty::new();
    let locks = Locks::new(store.clone()).unwrap();
    let floor = FencingToken::new(1 << 50).unwrap();
    store.raise_fails.store(1, Ordering::SeqCst);
    let error = locks.raise_tokens("n", floor).await.unwrap_err();
    assert_eq!((error.kind(), error.operation()), (ErrorKind::Unavailable, Some("raise_tokens")));
    assert_eq!(error.lock().map(LockName::as_str), Some("n"));
    locks.raise_tokens("n", floor).await.unwrap();
    assert!(token(&locks, "n").await > floor);
}

#[tokio::test(start_paused = true)]
async fn raising_tokens_beyond_the_maximum_is_refused() {
    let store = Faulty::new();
    let locks = Locks::new(store.clone()).unwrap();
    for above in [Locks::MAX_RAISED_TOKEN.plus(1), FencingToken::MAX] {
        let error = locks.raise_tokens("n", above).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config(ConfigIssue::Token));
        let most = Locks::MAX_RAISED_TOKEN.to_string();
        assert!(error.to_string().contains(&most), "{error}");
    }
    assert_eq!(locks.inspect("n").await.unwrap().last_token, None);
    locks.raise_tokens("n", Locks::MAX_RAISED_TOKEN).await.unwrap();
    assert!(token(&locks, "n").await > Locks::MAX_RAISED_TOKEN);
    let error = locks.raise_tokens("", FencingToken::MAX).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config(ConfigIssue::Name));
}

#[tokio::test]
async fn used_up_tokens_are_reported_and_none_is_granted_twice() {
    let store = Memory::new();
    let name = LockName::new("n").unwrap();
    let nearly = FencingToken::new(FencingToken::MAX.get() - 2).unwrap();
    store.raise_tokens(&name, nearly).await.unwrap();
    let locks = Locks::new(store.clone()).unwrap();
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
    // A refused claim does not stay held.
    locks.shutdown(secs(60)).await.unwrap();
    assert!(store.inspect(&name).await.unwrap().is_free());
}
