//! Leases expire by the store's clock, and not before the holder's local deadline.

use std::time::Duration;

use dlock_core::{Clock, ErrorKind, Mode, Released, Renewal, Renewed};

use crate::support::{LEASE, SHORT, Store, ask, exclusive, free, granted, lock, queue, take};

/// Long enough for a busy machine to renew it in time.
const RENEWED: Duration = Duration::from_secs(3);

/// So long that a waiter sends no heartbeat during the test.
const ENDLESS: Duration = Duration::from_secs(3600);

fn renewal(request: &dlock_core::AcquireRequest, mode: Mode) -> Renewal {
    Renewal::new(request.as_claim(), mode, request.lease)
}

#[tokio::test]
async fn a_dead_holders_lock_goes_to_the_waiter_and_not_too_early() {
    let store = Store::new();
    let (a, b) = (store.open().await, store.open().await);
    for _ in 0..5 {
        let dead = ask("x", Mode::Exclusive, SHORT);
        let local_deadline = take(&a, &dead).await.since.saturating_add(SHORT);
        // The end of the lease wakes the waiter, not its next heartbeat.
        let next = ask("x", Mode::Exclusive, ENDLESS);
        let grant = lock(&b, &next).await;
        let now = Clock::Boot.now();
        assert!(grant.since.saturating_add(ENDLESS) > now);
        assert!(now >= local_deadline, "{now:?} is before {local_deadline:?}");
        assert!(now.since(local_deadline) < ENDLESS / 6);
        free(&b, &next).await;
        assert_eq!(a.release(&dead.as_claim()).await.unwrap(), Released::AlreadyLost);
    }
}

#[tokio::test]
async fn a_renewed_lock_stays_held_and_an_expired_one_is_lost() {
    let store = Store::new();
    let (a, b) = (store.open().await, store.open().await);
    let held = ask("x", Mode::Exclusive, RENEWED);
    take(&a, &held).await;
    queue(&b, &exclusive("x")).await;
    for _ in 0..6 {
        tokio::time::sleep(RENEWED / 3).await;
        let renewed = a.renew(&[renewal(&held, Mode::Exclusive)]).await.unwrap();
        assert_eq!(renewed, [Renewed::Kept]);
    }
    tokio::time::sleep(RENEWED * 2).await;
    let renewed = a.renew(&[renewal(&held, Mode::Exclusive)]).await.unwrap();
    assert_eq!(renewed, [Renewed::Lost]);
}

#[tokio::test]
async fn a_queued_claim_outlives_its_lease_during_a_wait() {
    let store = Store::new();
    let (a, b) = (store.open().await, store.open().await);
    let held = exclusive("x");
    take(&a, &held).await;
    let patient = ask("x", Mode::Exclusive, RENEWED);
    queue(&b, &patient).await;
    let waiting = tokio::spawn({
        let (b, patient) = (b.clone(), patient.clone());
        async move { granted(&b, &patient).await }
    });
    let late = exclusive("x");
    queue(&a, &late).await;
    tokio::time::sleep(RENEWED * 3).await;
    free(&a, &held).await;
    waiting.await.unwrap();
    free(&b, &patient).await;
    granted(&a, &late).await;
}

#[tokio::test]
async fn a_dead_waiter_does_not_hold_up_those_behind_it() {
    let store = Store::new();
    let (a, b) = (store.open().await, store.open().await);
    let (held, dead, next) = (exclusive("x"), ask("x", Mode::Exclusive, SHORT), exclusive("x"));
    take(&a, &held).await;
    queue(&a, &dead).await;
    queue(&b, &next).await;
    free(&a, &held).await;
    granted(&b, &next).await;
}

#[tokio::test]
async fn an_expired_waiter_gets_an_error_and_is_not_queued_again() {
    let store = Store::new();
    let (a, b) = (store.open().await, store.open().await);
    let (held, stopped) = (exclusive("x"), ask("x", Mode::Exclusive, SHORT));
    take(&a, &held).await;
    queue(&b, &stopped).await;
    tokio::time::sleep(SHORT * 2).await;
    // The claim sent no heartbeats, so it has left the queue, which the next operation shows.
    a.renew(&[renewal(&held, Mode::Exclusive)]).await.unwrap();
    assert!(a.inspect(&held.name).await.unwrap().waiters.is_empty());
    assert_eq!(b.granted(&stopped).await.unwrap_err().kind(), ErrorKind::NotHeld);
    assert!(a.inspect(&held.name).await.unwrap().waiters.is_empty());
}

#[tokio::test]
async fn a_downgrade_lets_readers_in_and_no_writer() {
    let store = Store::new();
    let (a, b) = (store.open().await, store.open().await);
    let (w, r, w2) = (exclusive("x"), ask("x", Mode::Shared, LEASE), exclusive("x"));
    let token = take(&a, &w).await.token;
    queue(&b, &r).await;
    queue(&b, &w2).await;
    assert_eq!(a.renew(&[renewal(&w, Mode::Shared)]).await.unwrap(), [Renewed::Kept]);
    granted(&b, &r).await;
    let state = a.inspect(&w.name).await.unwrap();
    assert_eq!(state.holders[0].token, Some(token));
    assert_eq!(state.holders.iter().map(|h| h.mode).collect::<Vec<_>>(), [Mode::Shared; 2]);
    assert_eq!(state.waiters.len(), 1);
}

#[tokio::test]
async fn a_lease_in_the_file_is_longer_by_a_step_of_the_clock() {
    let store = Store::new();
    let client = store.open().await;
    let held = exclusive("x");
    take(&client, &held).await;
    client.renew(&[renewal(&held, Mode::Exclusive)]).await.unwrap();
    let (rows, lease) = (store.rows().await, LEASE.as_micros() + 1000);
    assert_eq!(rows[0].2.matches(&format!(" {lease} ")).count(), 2, "{rows:?}");
}

#[tokio::test]
async fn inspecting_shows_the_requested_lease_and_changes_nothing() {
    let store = Store::new();
    let client = store.open().await;
    let held = ask("x", Mode::Exclusive, ENDLESS);
    take(&client, &held).await;
    let before = store.rows().await;
    let state = client.inspect(&held.name).await.unwrap();
    assert!(state.holders[0].remaining <= ENDLESS, "{:?}", state.holders[0].remaining);
    assert!(state.holders[0].remaining > ENDLESS / 2);
    assert!(client.inspect(&crate::support::name("y")).await.unwrap().is_free());
    assert_eq!(store.rows().await, before);
}

#[tokio::test]
async fn a_renewal_of_a_free_lock_is_lost() {
    let store = Store::new();
    let client = store.open().await;
    let stranger = exclusive("x");
    let claim = stranger.as_claim().with_used(0);
    let renewal = Renewal::new(claim, Mode::Exclusive, LEASE);
    assert_eq!(client.renew(&[renewal]).await.unwrap(), [Renewed::Lost]);
    assert!(client.renew(&[]).await.unwrap().is_empty());
}
