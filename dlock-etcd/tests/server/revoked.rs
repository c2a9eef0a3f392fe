//! Claims whose keys another client deletes.

use std::time::Duration;

use dlock_core::{Acquired, Claim, ErrorKind, Locks, Mode, Released, Renewal, Renewed, StoreEvent};
use dlock_testlab::Stop;
use tokio::time::{sleep, timeout};

use crate::support::{
    SOON, ask, exclusive, free, granted, key_of, keys, name, queue, run, start, take, until, waits,
    works,
};

#[test]
fn a_holder_whose_key_is_deleted_is_notified() {
    run(async {
        let (server, client, _) = start().await?;
        let mut losses = client.events().ok_or("it reports no losses")?;
        // At once, and after the key is watched.
        for pause in [Duration::ZERO, Duration::from_secs(2)] {
            let held = exclusive("a");
            take(&client, &held).await?;
            sleep(pause).await;
            server.delete(&keys(&server, "a").await?[0]).await?;
            assert_eq!(timeout(SOON, losses.recv()).await??, StoreEvent::Ended(held.claim));
            let renewal = Renewal::new(held.as_claim(), held.mode, held.lease);
            assert_eq!(client.renew(&[renewal]).await?, [Renewed::Lost]);
            assert_eq!(client.release(&held.as_claim()).await?, Released::AlreadyLost);
        }
        works(&client, "a").await
    });
}

#[test]
fn a_waiter_whose_key_is_deleted_never_gets_the_lock() {
    run(async {
        let (server, client, other) = start().await?;
        for waits_meanwhile in [false, true] {
            let claims: [_; 3] = std::array::from_fn(|_| exclusive("a"));
            let [held, evicted, next] = &claims;
            take(&other, held).await?;
            queue(&client, evicted).await?;
            queue(&other, next).await?;
            let key = key_of(&server, evicted).await?;
            let deleting = async {
                if waits_meanwhile {
                    // By then, the client watches the claim's own key.
                    sleep(Duration::from_secs(2)).await;
                }
                server.delete(&key).await
            };
            let outcome = if waits_meanwhile {
                let (outcome, deleted) = tokio::join!(client.granted(evicted), deleting);
                deleted?;
                outcome
            } else {
                deleting.await?;
                // The event of the release comes first.
                free(&other, held).await?;
                timeout(SOON, client.granted(evicted)).await?
            };
            let outcome = outcome.err().ok_or("it is granted")?;
            assert_eq!(outcome.kind(), ErrorKind::NotHeld, "{outcome}");
            if waits_meanwhile {
                free(&other, held).await?;
            }
            granted(&other, next).await?;
            // The repeated claim is the last in the queue.
            queue(&client, evicted).await?;
            waits(&client, evicted).await?;
            free(&other, next).await?;
            granted(&client, evicted).await?;
            free(&client, evicted).await?;
        }
        Ok(())
    });
}

#[test]
fn claims_of_other_clients_can_be_ended() {
    run(async {
        let (_server, client, other) = start().await?;
        let locks = Locks::new(client.clone())?;
        let guard = locks.rw("a")?.read().lock().await?;
        let waiting = exclusive("a");
        queue(&client, &waiting).await?;
        for id in [waiting.claim, other.inspect(&name("a")).await?.holders[0].claim] {
            let released = other.release(&Claim::new(name("a"), id)).await?;
            assert_eq!(released, Released::Released);
        }
        timeout(SOON, guard.lost()).await?;
        until("the name is free", async || Ok(other.inspect(&name("a")).await?.is_free())).await
    });
}

#[test]
fn permits_that_are_released_in_part_are_counted() {
    run(async {
        let (_server, client, other) = start().await?;
        let permits = |n| Mode::permits(n, 5).map_err(Stop::from);
        let (held, next) = (ask("a", permits(5)?), ask("a", permits(2)?));
        take(&client, &held).await?;
        queue(&other, &next).await?;
        for (n, fits) in [(4, false), (3, true)] {
            let renewal = Renewal::new(held.as_claim(), permits(n)?, held.lease);
            assert_eq!(client.renew(&[renewal]).await?, [Renewed::Kept]);
            match fits {
                true => drop(granted(&other, &next).await?),
                false => waits(&other, &next).await?,
            }
        }
        assert_eq!(other.acquire(&ask("a", permits(1)?)).await?, Acquired::Queued);
        free(&client, &held).await
    });
}

/// A client revokes the lease of its last session, which may have ended by itself.
#[test]
fn a_session_does_not_end_with_the_lease_of_the_last_one() {
    run(async {
        let (server, client, other) = start().await?;
        let (revision, old) = (server.revision().await?, server.leases().await?);
        assert_eq!(old.len(), 2);
        for lease in &old {
            server.revoke(lease).await?;
        }
        let renewed = async || {
            let now = server.leases().await?;
            Ok(now.len() == 2 && now.iter().all(|lease| !old.contains(lease)))
        };
        until("both have a new session", renewed).await?;
        sleep(Duration::from_secs(1)).await;
        // Each revocation and each marker of a session is one revision.
        assert_eq!(server.revision().await? - revision, 4);
        works(&client, "a").await?;
        works(&other, "a").await
    });
}
