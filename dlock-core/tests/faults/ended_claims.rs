//! Claims that end in the store before their grants, for example with a session: the core starts
//! over with others, also for one try.

use std::sync::{Arc, atomic::Ordering::SeqCst};

use dlock_core::*;

use super::store::Store;
use crate::support::secs;

/// The number of answers for which a claim has ended.
const ENDS: usize = 3;

fn store_and_locks() -> (Arc<Store>, Locks) {
    let store = Store::new();
    let locks = store.client(secs(10));
    store.ends.store(ENDS, SeqCst);
    (store, locks)
}

#[tokio::test(start_paused = true)]
async fn a_try_starts_over_when_its_claim_has_ended() {
    let (store, locks) = store_and_locks();
    let guard = locks.mutex("a").unwrap().try_lock().await.unwrap().unwrap();
    assert_eq!(store.ends.load(SeqCst), 0);
    guard.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_multi_lock_starts_over_when_its_claims_have_ended() {
    for tries in [true, false] {
        for one_by_one in [true, false] {
            let (store, locks) = store_and_locks();
            store.one_by_one.store(one_by_one, SeqCst);
            let multi = locks.multi(["a", "b"]).unwrap();
            let guard = if tries { multi.try_lock().await } else { multi.lock().await.map(Some) };
            let guard = guard.unwrap().expect("the locks are free");
            assert_eq!(store.ends.load(SeqCst), 0);
            guard.release().await.unwrap();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_try_ends_after_a_lease_if_all_its_claims_end() {
    let (store, locks) = store_and_locks();
    store.ends.store(usize::MAX, SeqCst);
    let single = locks.mutex("a").unwrap().try_lock().await;
    let multi = locks.multi(["a", "b"]).unwrap().try_lock().await;
    for error in [single.unwrap_err(), multi.unwrap_err()] {
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    }
}
