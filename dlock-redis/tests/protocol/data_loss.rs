//! A server that has lost acknowledged data, and grants that replicas must confirm.

use std::time::Duration;

use dlock_core::{
    AcquireRequest, Acquired, DynBackend, Ended, ErrorKind, FencingToken, LockOptions, Locks, Mode,
    Renewal, Renewed,
};
use dlock_testlab::{Stop, redis::RedisServer};
use tokio::time::timeout;

use crate::support::{
    SOON, ask, attempt, brief, connect, exclusive, free, granted, keys, millis, queue, renew, run,
    says, start, take, until,
};

async fn renewed(
    client: &DynBackend,
    request: &AcquireRequest,
    token: u64,
) -> Result<Renewed, Stop> {
    let (claim, mode, lease) = (request.as_claim(), request.mode, request.lease);
    let token = Some(FencingToken::new(token)?);
    Ok(client.renew(&[Renewal::new(claim, mode, lease).with_token(token)]).await?[0])
}

async fn flush(server: &RedisServer) -> Result<(), Stop> {
    server.command(&["FLUSHALL"]).await?.ok()?;
    Ok(())
}

#[test]
fn a_claim_lost_with_the_data_is_reported_as_forgotten() {
    run(async {
        let server = start().await?;
        let client = connect(&server.url()).await?;
        for mode in [Mode::Exclusive, Mode::Shared] {
            let (held, next) = (ask("a", mode), exclusive("a"));
            let token = take(&client, &held).await?;
            assert_eq!(renewed(&client, &held, token).await?, Renewed::Kept);
            flush(&server).await?;
            assert_eq!(renewed(&client, &held, token).await?, Renewed::Forgotten);
            // The next holder has a larger token, which hides the loss. Without their data, servers
            // count in milliseconds.
            tokio::time::sleep(millis(2)).await;
            take(&client, &next).await?;
            assert_eq!(renewed(&client, &held, token).await?, Renewed::Lost);
            free(&client, &next).await?;
        }
        Ok(())
    });
}

#[test]
fn an_ended_claim_is_not_reported_as_forgotten() {
    run(async {
        let server = start().await?;
        let (one, two) = (connect(&server.url()).await?, connect(&server.url()).await?);
        let ends = brief("a", millis(100));
        let token = take(&one, &ends).await?;
        tokio::time::sleep(millis(200)).await;
        assert_eq!(renewed(&one, &ends, token).await?, Renewed::Lost);
        for mode in [Mode::Exclusive, Mode::Shared] {
            let taken = ask("b", mode);
            let token = take(&one, &taken).await?;
            free(&two, &taken).await?;
            assert_eq!(renewed(&one, &taken, token).await?, Renewed::Lost);
        }
        Ok(())
    });
}

#[test]
fn a_guard_reports_why_its_lock_was_lost() {
    run(async {
        let server = start().await?;
        let options = LockOptions::new().with_lease(Duration::from_secs(3));
        let locks = Locks::new(connect(&server.url()).await?)?.with_options(options)?;
        let guard = locks.mutex("a")?.lock().await?;
        flush(&server).await?;
        let ended = tokio::time::timeout(SOON, guard.lost()).await?;
        assert_eq!(ended, Ended::StoreReset);
        Ok(())
    });
}

/// The last token, the queue and the waiters of a lock, as a replica has them.
struct Replica<'a>(&'a RedisServer, [String; 5]);

impl<'a> Replica<'a> {
    async fn of(server: &'a RedisServer, name: &str) -> Result<Self, Stop> {
        let keys = keys(name);
        for key in &keys[1..4] {
            server.command(&["COPY", key, &format!("copy:{key}"), "REPLACE"]).await?.ok()?;
        }
        Ok(Self(server, keys))
    }

    /// Takes over: the grants since then are lost, and so is the hold of the former holder.
    async fn takes_over(&self) -> Result<(), Stop> {
        let Self(server, keys) = self;
        server.command(&["DEL", &keys[0], &keys[4]]).await?.ok()?;
        for key in &keys[1..4] {
            server.command(&["COPY", &format!("copy:{key}"), key, "REPLACE"]).await?.ok()?;
        }
        Ok(())
    }
}

/// A replica that takes over may lack a grant, and have the place in the queue. The claim is then
/// granted anew, perhaps after others.
#[test]
fn a_claim_that_was_granted_anew_has_lost_its_grant() {
    run(async {
        let server = start().await?;
        let (one, two) = (connect(&server.url()).await?, connect(&server.url()).await?);
        for mode in [Mode::Exclusive, Mode::Shared, Mode::permits(2, 3)?] {
            let held = match mode {
                Mode::Permits { of, .. } => ask("a", Mode::permits(of, of)?),
                _ => exclusive("a"),
            };
            let waiting = ask("a", mode);
            take(&one, &held).await?;
            queue(&two, &waiting).await?;
            let replica = Replica::of(&server, "a").await?;
            free(&one, &held).await?;
            let token = granted(&two, &waiting).await?.token.get();
            assert_eq!(renewed(&two, &waiting, token).await?, Renewed::Kept);
            replica.takes_over().await?;
            // The first renewal grants it, and the second one finds that grant.
            for _ in 0..2 {
                assert_eq!(renewed(&two, &waiting, token).await?, Renewed::Forgotten, "{mode:?}");
            }
            if mode == Mode::Exclusive {
                let weaker = waiting.clone().with_mode(Mode::Shared);
                assert_eq!(renewed(&two, &weaker, token).await?, Renewed::Forgotten);
            }
            let holders = one.inspect(&waiting.name).await?.holders;
            let anew = holders.first().and_then(|holder| holder.token).ok_or("it is free")?.get();
            assert!(holders.len() == 1 && anew > token, "{holders:?} after {token}");
            // The new grant itself is renewed, also by a client that does not know its token.
            assert_eq!(renewed(&two, &waiting, anew).await?, Renewed::Kept);
            assert_eq!(renew(&two, std::slice::from_ref(&waiting)).await?, [Renewed::Kept]);
            // If the replica's clock is behind, the new token may be smaller.
            assert_eq!(renewed(&two, &waiting, anew + 1).await?, Renewed::Forgotten);
            free(&two, &waiting).await?;
        }
        Ok(())
    });
}

#[test]
fn the_guard_of_a_claim_that_was_granted_anew_is_lost() {
    run(async {
        let server = start().await?;
        let one = connect(&server.url()).await?;
        let options = LockOptions::new().with_lease(Duration::from_secs(3));
        let locks = Locks::new(connect(&server.url()).await?)?.with_options(options)?;
        let (held, lock) = (exclusive("a"), locks.mutex("a")?);
        take(&one, &held).await?;
        let waits = async { Ok::<_, Stop>(timeout(SOON, lock.lock()).await??) };
        let frees = async {
            until("it waits", async || Ok(one.inspect(&held.name).await?.waiters.len() == 1))
                .await?;
            let replica = Replica::of(&server, "a").await?;
            free(&one, &held).await?;
            Ok(replica)
        };
        let (guard, replica) = tokio::try_join!(waits, frees)?;
        replica.takes_over().await?;
        assert_eq!(timeout(SOON, guard.lost()).await?, Ended::StoreReset);
        Ok(())
    });
}

#[test]
fn a_busy_lock_is_reported_busy_without_replicas() {
    run(async {
        let server = start().await?;
        let other = connect(&server.url()).await?;
        let url = format!("{}?dlock.durability=1&dlock.response_timeout=2s", server.url());
        let client = connect(&url).await?;
        let locks = Locks::new(client.clone())?;
        let (held, waiting) = (exclusive("a"), exclusive("a"));
        take(&other, &held).await?;
        assert!(timeout(SOON, locks.mutex("a")?.try_lock()).await??.is_none());
        assert!(timeout(SOON, locks.fair("a")?.try_lock()).await??.is_none());
        assert!(timeout(SOON, locks.rw("a")?.read().try_lock()).await??.is_none());
        assert_eq!(timeout(SOON, client.acquire(&attempt("a"))).await??, Acquired::Busy);
        timeout(SOON, queue(&client, &waiting)).await??;
        free(&client, &waiting).await?;
        free(&other, &held).await?;
        // A grant that no replica confirms does not count.
        let error = timeout(SOON, client.acquire(&attempt("a"))).await?;
        says(&error.err().ok_or("it is granted")?, ErrorKind::Unavailable, "dlock.durability");
        Ok(())
    });
}
