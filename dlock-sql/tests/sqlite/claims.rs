//! Every verb may be repeated, and a cancelled claim leaves no trace.

use dlock_core::{Acquired, Certainty, Clock, ConfigIssue, ErrorKind, Mode, Released};

use crate::support::{LEASE, Store, ask, attempt, exclusive, free, granted, queue, take};

#[tokio::test]
async fn an_acquire_sent_again_is_the_same_grant() {
    let store = Store::new();
    let client = store.open().await;
    let request = exclusive("x");
    let first = take(&client, &request).await;
    let again = take(&client, &request).await;
    assert_eq!((first.token, first.tokens), (again.token, again.tokens));
    free(&client, &request).await;
    assert!(client.inspect(&request.name).await.unwrap().is_free());
}

#[tokio::test]
async fn a_repeated_acquire_keeps_its_position_in_the_queue() {
    let store = Store::new();
    let client = store.open().await;
    let (held, waiting) = (exclusive("x"), exclusive("x"));
    take(&client, &held).await;
    queue(&client, &waiting).await;
    queue(&client, &waiting).await;
    assert_eq!(client.inspect(&held.name).await.unwrap().waiters.len(), 1);
}

#[tokio::test]
async fn a_repeated_or_foreign_release_finds_nothing() {
    let store = Store::new();
    let client = store.open().await;
    let request = exclusive("x");
    take(&client, &request).await;
    let stranger = exclusive("x").as_claim();
    assert_eq!(client.release(&stranger).await.unwrap(), Released::AlreadyLost);
    free(&client, &request).await;
    assert_eq!(client.release(&request.as_claim()).await.unwrap(), Released::AlreadyLost);
}

#[tokio::test]
async fn a_cancelled_waiter_is_skipped() {
    let store = Store::new();
    let (a, b) = (store.open().await, store.open().await);
    let (held, gone, next) = (exclusive("x"), exclusive("x"), exclusive("x"));
    take(&a, &held).await;
    queue(&b, &gone).await;
    queue(&b, &next).await;
    free(&b, &gone).await;
    free(&a, &held).await;
    granted(&b, &next).await;
}

#[tokio::test]
async fn a_cancelled_writer_unblocks_the_readers_behind_it() {
    let store = Store::new();
    let client = store.open().await;
    let (r1, w, r2) =
        (ask("x", Mode::Shared, LEASE), exclusive("x"), ask("x", Mode::Shared, LEASE));
    take(&client, &r1).await;
    queue(&client, &w).await;
    queue(&client, &r2).await;
    free(&client, &w).await;
    granted(&client, &r2).await;
}

#[tokio::test]
async fn a_busy_try_leaves_no_trace_and_writes_nothing() {
    let store = Store::new();
    let (a, b) = (store.open().await, store.open().await);
    let held = exclusive("x");
    take(&a, &held).await;
    // The first try of a process that has not read the lock has to write. So does a try whose read
    // fails, which may happen on a busy machine. So some rounds write.
    let mut tries = 0;
    loop {
        for client in [&a, &b] {
            assert_eq!(client.acquire(&attempt("x")).await.unwrap(), Acquired::Busy);
        }
        let (before, began) = (store.rows().await, Clock::Boot.now());
        for client in [&a, &b] {
            for _ in 0..10 {
                assert_eq!(client.acquire(&attempt("x")).await.unwrap(), Acquired::Busy);
            }
        }
        tries += 1;
        let after = store.rows().await;
        if after == before || tries == 3 {
            assert_eq!(after, before, "in {:?}", Clock::Boot.now().since(began));
            break;
        }
    }
    free(&a, &held).await;
    let request = attempt("x");
    take(&b, &request).await;
    free(&b, &request).await;
}

#[tokio::test]
async fn another_size_is_refused_while_in_use_and_accepted_after() {
    let store = Store::new();
    let client = store.open().await;
    let of = |of| ask("x", Mode::permits(1, of).unwrap(), LEASE);
    let held = of(3);
    take(&client, &held).await;
    let tries = [of(5), of(5).with_queue(dlock_core::Queue::FailIfBusy)];
    for other in tries {
        let error = client.acquire(&other).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config(ConfigIssue::Capacity));
        assert_eq!(error.certainty(), Certainty::NotApplied);
        let text = error.to_string();
        assert!(text.contains("3 permits") && text.contains("5 permits"), "{text}");
    }
    free(&client, &held).await;
    take(&client, &of(5)).await;
}

#[tokio::test]
async fn unused_tokens_of_a_block_are_returned() {
    let store = Store::new();
    let client = store.open().await;
    let request = exclusive("x").with_tokens(1_000_000_000);
    let grant = take(&client, &request).await;
    assert_eq!(grant.tokens, 1_000_000_000);
    let used = grant.token.plus(2);
    client.release(&request.as_claim().with_used(3)).await.unwrap();
    let next = take(&client, &exclusive("x")).await.token;
    assert!(next > used && next < grant.token.plus(999_999_999), "{next}");
}
