//! Fencing tokens grow, and a database that has lost acknowledged writes is noticed.

use std::time::Duration;

use dlock_core::{DynBackend, Ended, FencingToken, LockOptions, Locks, Mode, Renewal, Renewed};

use crate::support::{LEASE, LONG, SHORT, Store, ask, exclusive, free, lock, take};

#[tokio::test]
async fn tokens_grow_over_release_expiry_and_processes() {
    let store = Store::new();
    let clients = [store.open().await, store.open().await];
    let mut last = 0;
    for n in 0..30 {
        let client = &clients[n % 2];
        let dies = n % 10 == 9;
        let lease = if dies { SHORT } else { Duration::from_secs(30) };
        let request = ask("x", Mode::Exclusive, lease).with_tokens(5);
        let grant = lock(client, &request).await;
        assert!(grant.token.get() > last, "{} after {last}", grant.token);
        last = grant.token.get() + 4;
        if !dies {
            free(client, &request).await;
        }
    }
}

#[tokio::test]
async fn tokens_grow_over_the_deletion_of_the_row() {
    let store = Store::new();
    let retention = Duration::from_millis(50);
    let client = dlock_sql::Sqlite::open(store.config().with_retention(retention)).await.unwrap();
    let mut last = 0;
    for _ in 0..3 {
        let request = exclusive("x");
        let token = take(&client, &request).await.token.get();
        assert!(token > last, "{token} after {last}");
        last = token;
        free(&client, &request).await;
        while !store.rows().await.is_empty() {
            tokio::time::sleep(retention / 5).await;
        }
    }
}

#[tokio::test]
async fn a_block_that_is_ahead_of_the_clock_keeps_its_row() {
    let store = Store::new();
    let config = store.config().with_retention(Duration::from_millis(20));
    let client = dlock_sql::Sqlite::open(config).await.unwrap();
    // A holder that dies has as many tokens as the clock counts in 0.7 s.
    let dies = ask("x", Mode::Exclusive, SHORT).with_tokens(700_000);
    let last = take(&client, &dies).await.token.plus(699_999);
    tokio::time::sleep(SHORT * 2).await;
    assert_eq!(store.rows().await.len(), 1);
    while !store.rows().await.is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(take(&client, &exclusive("x")).await.token > last);
}

#[tokio::test]
async fn tokens_grow_over_a_restart() {
    let store = Store::new();
    let mut last = 0;
    for _ in 0..3 {
        let client = store.open().await;
        let request = exclusive("x");
        let token = take(&client, &request).await.token.get();
        assert!(token > last, "{token} after {last}");
        last = token;
        free(&client, &request).await;
    }
}

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
