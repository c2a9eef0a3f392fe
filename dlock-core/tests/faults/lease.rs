//! One check applies to every lease.

use std::sync::atomic::Ordering::SeqCst;

use dlock_core::*;

use super::store::Store;
use crate::support::secs;

#[tokio::test(start_paused = true)]
async fn no_lease_is_longer_than_the_store_supports() {
    let store = Store::new();
    *store.guard.lock() = secs(3);
    let fits = store.client(secs(2));
    let job = |locks: &Locks| locks.job("nightly").unwrap();
    assert!(job(&fits).with_at_least(secs(3)).is_ok());
    let refused = job(&fits).with_at_least(secs(60)).unwrap_err();
    let is_refused = |error: &Error| {
        assert_eq!(error.kind(), ErrorKind::Config(ConfigIssue::Lease), "{error}");
        assert!(error.to_string().contains("the guard of the test"), "{error}");
    };
    is_refused(&refused);
    // A lease and its lock-delay are one lease of the store's.
    let delayed = LockOptions::new().with_lease(secs(2)).with_lock_delay(secs(2));
    for long in [store.client(secs(4)), fits.with_options(delayed).unwrap()] {
        is_refused(&long.mutex("a").unwrap().lock().await.unwrap_err());
        is_refused(&long.fair("a").unwrap().try_lock().await.unwrap_err());
        is_refused(&long.rw("a").unwrap().read().lock().await.unwrap_err());
        is_refused(&long.semaphore("a", 2).unwrap().acquire().await.unwrap_err());
        is_refused(&long.multi(["a", "b"]).unwrap().lock().await.unwrap_err());
        is_refused(&long.election("a").unwrap().campaign().await.unwrap_err());
        is_refused(&job(&long).run(|_| async {}).await.unwrap_err());
        let reentrant = long.reentrant("a").unwrap();
        is_refused(&reentrant.lock_as(&Owner::new()).await.unwrap_err());
    }
    // The longest lease was larger when the minimum time was set.
    let kept = job(&fits).with_at_least(secs(3)).unwrap();
    *store.guard.lock() = secs(2);
    is_refused(&kept.run(|_| async {}).await.unwrap_err());
    assert_eq!(store.acquires.load(SeqCst), 0, "none was asked for");
}
