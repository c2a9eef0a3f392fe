//! Inspection and revocation of claims by other clients.

use std::time::Duration;

use dlock_core::{
    Acquired, Claim, ClaimId, Clock, DynBackend, Ended, ErrorKind, Locks, Mode, Released, Renewal,
    Renewed, StoreEvent,
};
use dlock_testkit::{Stop, Verdict};
use tokio::time::{sleep, timeout};

use crate::{
    shared::start,
    support::{self, SOON, ask, exclusive, free, granted, name, queue, run, take, until, waits},
};

/// Ends a claim by its id alone, as an operator does after an inspection of the lock.
async fn evict(client: &DynBackend, lock: &str, id: ClaimId) -> Verdict {
    let claim = Claim::new(name(lock), id);
    match client.release(&claim).await? {
        Released::Released => Ok(()),
        other => Err(Stop::failed(format!("{id} is {other:?}"))),
    }
}

#[test]
fn inspect_shows_the_claims_of_all_sessions_in_order() {
    run(async {
        let (place, one) = start().await?;
        let (two, looker) = (place.connect().await?, place.connect().await?);
        let (read, write) = (Mode::Shared, Mode::Exclusive);
        let claims: Vec<_> =
            [read, read, write, read, write].map(|mode| ask("a", mode)).into_iter().collect();
        for (at, request) in claims.iter().enumerate() {
            let client = [&one, &two][at % 2];
            let expected = at < 2;
            let acquired = client.acquire(request).await?;
            assert_eq!(matches!(acquired, Acquired::Granted(_)), expected, "{acquired:?}");
        }
        for client in [&looker, &one, &two] {
            let state = client.inspect(&name("a")).await?;
            let all = state.holders.iter().chain(&state.waiters);
            let seen: Vec<_> = all.clone().map(|claim| (claim.claim, claim.mode)).collect();
            let asked: Vec<_> = claims.iter().map(|claim| (claim.claim, claim.mode)).collect();
            assert_eq!((state.holders.len(), seen), (2, asked));
            assert!(state.holders[0].token < state.holders[1].token, "{state:?}");
            assert_eq!(state.last_token, state.holders[1].token);
            assert!(state.waiters.iter().all(|claim| claim.token.is_none()), "{state:?}");
            for claim in all {
                assert!(claim.remaining > Duration::from_secs(30), "{state:?}");
                assert!(claim.remaining <= support::LEASE, "{state:?}");
            }
        }
        Ok(())
    })
}

#[test]
fn a_revoked_holder_is_notified() {
    run(async {
        let (server, client) = support::start().await?;
        let other = support::connect(&support::url(&server)).await?;
        let locks = Locks::new(client)?;
        let began = Clock::Boot.now();
        let guards = [
            locks.mutex("a")?.lock().await?,
            locks.rw("b")?.read().lock().await?,
            locks.fair("c")?.lock().await?,
        ];
        // By then, most locks have been released.
        sleep(Duration::from_millis(500)).await;
        let watched = server.four_letter_word("wchp").await?;
        if Clock::Boot.now().since(began) < Duration::from_secs(1) {
            assert_eq!(watched.trim(), "");
        }
        until("their nodes are watched", async || {
            Ok(server.four_letter_word("wchp").await?.matches("/_c_").count() == guards.len())
        })
        .await?;
        for (lock, guard) in ["a", "b", "c"].into_iter().zip(&guards) {
            guard.check()?;
            let state = other.inspect(&name(lock)).await?;
            evict(&other, lock, state.holders[0].claim).await?;
            assert_eq!(timeout(SOON, guard.lost()).await?, Ended::Revoked);
            assert_eq!(guard.check().unwrap_err().kind(), ErrorKind::Lost);
            assert!(other.inspect(&name(lock)).await?.is_free());
            take(&other, &exclusive(lock)).await?;
        }
        Ok(())
    })
}

/// Its node is not watched yet, but will be a little later.
#[test]
fn a_holder_that_is_revoked_at_once_is_notified() {
    run(async {
        let (place, client) = start().await?;
        let other = place.connect().await?;
        let mut losses = client.events().ok_or("it tells of no losses")?;
        for _ in 0..10 {
            let held = exclusive("a");
            take(&client, &held).await?;
            evict(&other, "a", held.claim).await?;
            assert_eq!(timeout(SOON, losses.recv()).await??, StoreEvent::Ended(held.claim));
            let renewal = Renewal::new(held.as_claim(), held.mode, held.lease);
            assert_eq!(client.renew(&[renewal]).await?, [Renewed::Lost]);
        }
        Ok(())
    })
}

#[test]
fn only_the_revoked_holder_is_notified() {
    run(async {
        let (place, client) = start().await?;
        let other = place.connect().await?;
        let mut losses = client.events().ok_or("it tells of no losses")?;
        let permits = Mode::permits(1, 5)?;
        let held: Vec<_> = (0..5).map(|_| ask("a", permits)).collect();
        let next = ask("a", permits);
        for request in &held {
            take(&client, request).await?;
        }
        queue(&other, &next).await?;
        sleep(Duration::from_millis(600)).await;
        evict(&other, "a", held[2].claim).await?;
        granted(&other, &next).await?;
        assert_eq!(timeout(SOON, losses.recv()).await??, StoreEvent::Ended(held[2].claim));
        assert!(timeout(Duration::from_millis(300), losses.recv()).await.is_err());
        for (at, request) in held.iter().enumerate().filter(|(at, _)| *at != 2) {
            free(&client, request).await.map_err(|stop| Stop::failed(format!("{at} {stop:?}")))?;
        }
        free(&other, &next).await
    })
}

/// After that, its node has another name.
#[test]
fn a_claim_with_fewer_permits_is_kept_and_can_be_revoked() {
    run(async {
        let (place, client) = start().await?;
        let other = place.connect().await?;
        let mut losses = client.events().ok_or("it tells of no losses")?;
        for watched in [false, true] {
            let held = ask("a", Mode::permits(4, 5)?);
            take(&client, &held).await?;
            if watched {
                sleep(Duration::from_millis(600)).await;
            }
            for n in [3, 1] {
                let mode = Mode::permits(n, 5)?;
                let renewal = Renewal::new(held.as_claim(), mode, held.lease);
                assert_eq!(client.renew(&[renewal]).await?, [Renewed::Kept]);
                assert!(timeout(Duration::from_millis(600), losses.recv()).await.is_err());
                let state = other.inspect(&held.name).await?;
                let seen = state.holders.iter().map(|holder| (holder.claim, holder.mode));
                assert_eq!(seen.collect::<Vec<_>>(), [(held.claim, mode)]);
            }
            evict(&other, "a", held.claim).await?;
            assert_eq!(timeout(SOON, losses.recv()).await??, StoreEvent::Ended(held.claim));
            assert!(other.inspect(&held.name).await?.is_free());
        }
        Ok(())
    })
}

#[test]
fn a_revoked_waiter_never_gets_the_lock() {
    run(async {
        let (place, client) = start().await?;
        let other = place.connect().await?;
        // With and without a call that waits for the grant while the node is deleted.
        for waits_meanwhile in [false, true] {
            let claims: [_; 3] = std::array::from_fn(|_| exclusive("a"));
            let [held, evicted, next] = &claims;
            take(&client, held).await?;
            queue(&client, evicted).await?;
            queue(&other, next).await?;
            let outcome = async {
                if !waits_meanwhile {
                    evict(&other, "a", evicted.claim).await?;
                }
                let outcome = timeout(SOON, client.granted(evicted)).await?;
                Ok::<_, Stop>(outcome.err().ok_or("it is granted")?)
            };
            let evicting = async {
                if waits_meanwhile {
                    sleep(Duration::from_millis(200)).await;
                    evict(&other, "a", evicted.claim).await?;
                }
                Verdict::Ok(())
            };
            let (outcome, evicting) = tokio::join!(outcome, evicting);
            evicting?;
            assert_eq!(outcome?.kind(), ErrorKind::NotHeld);
            free(&client, held).await?;
            granted(&other, next).await?;
            let renewal = Renewal::new(evicted.as_claim(), evicted.mode, evicted.lease);
            assert_eq!(client.renew(&[renewal]).await?, [Renewed::Lost]);
            // The repeated claim is at the end of the queue.
            queue(&client, evicted).await?;
            waits(&client, evicted).await?;
            free(&other, next).await?;
            granted(&client, evicted).await?;
            free(&client, evicted).await?;
        }
        Ok(())
    })
}

/// With the locks of the core, a waiter whose claim was revoked sends a new one.
#[test]
fn a_lock_whose_wait_is_revoked_waits_again() {
    run(async {
        let (place, client) = start().await?;
        let other = place.connect().await?;
        let held = exclusive("a");
        take(&other, &held).await?;
        let mutex = Locks::new(client)?.mutex("a")?;
        let evicting = async {
            for _ in 0..3 {
                let mut waiter = None;
                until("somebody waits", async || {
                    let state = other.inspect(&name("a")).await?;
                    waiter = state.waiters.first().map(|waiter| waiter.claim);
                    Ok(waiter.is_some())
                })
                .await?;
                evict(&other, "a", waiter.ok_or("nobody waits")?).await?;
            }
            until("somebody waits", async || {
                Ok(other.inspect(&name("a")).await?.waiters.len() == 1)
            })
            .await?;
            free(&other, &held).await
        };
        let (guard, evicting) = tokio::join!(mutex.lock(), evicting);
        evicting?;
        guard?.check()?;
        Ok(())
    })
}
