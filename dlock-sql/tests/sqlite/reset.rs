//! A database that has lost acknowledged writes, and one that has not.

use std::time::Duration;

use dlock_core::{DynBackend, Ended, FencingToken, LockOptions, Locks, Mode, Renewal, Renewed};

use crate::support::{LEASE, LONG, SHORT, Store, ask, exclusive, free, take};

async fn renewed(
    client: &DynBackend,
    request: &dlock_core::AcquireRequest,
    token: FencingToken,
) -> Renewed {
    let renewal = Renewal::new(request.as_claim(), request.mode, request.lease).with_token(token);
    client.renew(&[renewal]).await.unwrap()[0]
}

async fn delete(store: &Store) {
    sqlx::query("DELETE FROM dlock_lock").execute(&mut store.raw().await).await.unwrap();
}

#[tokio::test]
async fn a_claim_deleted_with_its_row_is_forgotten() {
    let store = Store::new();
    let client = store.open().await;
    for mode in [Mode::Exclusive, Mode::Shared] {
        let held = ask("x", mode, LEASE);
        let token = take(&client, &held).await.token;
        assert_eq!(renewed(&client, &held, token).await, Renewed::Kept);
        delete(&store).await;
        assert_eq!(renewed(&client, &held, token).await, Renewed::Forgotten);
        // The next holder has a larger token, which hides the loss.
        let next = exclusive("x");
        take(&client, &next).await;
        assert_eq!(renewed(&client, &held, token).await, Renewed::Lost);
        free(&client, &next).await;
    }
}

#[tokio::test]
async fn an_expired_claim_is_not_forgotten() {
    let store = Store::new();
    let (client, other) = (store.open().await, store.open().await);
    let (brief, taken) = (ask("x", Mode::Exclusive, SHORT), exclusive("y"));
    let token = take(&client, &brief).await.token;
    tokio::time::sleep(SHORT * 2).await;
    assert_eq!(renewed(&client, &brief, token).await, Renewed::Lost);
    let token = take(&client, &taken).await.token;
    free(&other, &taken).await;
    assert_eq!(renewed(&client, &taken, token).await, Renewed::Lost);
}

#[tokio::test]
async fn a_guard_reports_why_it_was_lost() {
    let store = Store::new();
    let options = LockOptions::new().with_lease(Duration::from_secs(3));
    let locks = Locks::new(store.open().await).unwrap().with_options(options).unwrap();
    let guard = locks.mutex("x").unwrap().lock().await.unwrap();
    delete(&store).await;
    let ended = tokio::time::timeout(LONG, guard.lost()).await.expect("the loss is reported");
    assert_eq!(ended, Ended::StoreReset);
}
