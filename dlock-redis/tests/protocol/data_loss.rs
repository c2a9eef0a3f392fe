//! A server that has lost acknowledged data, and grants that replicas must confirm.

use std::time::Duration;

use dlock_core::{
    AcquireRequest, Acquired, DynBackend, Ended, ErrorKind, FencingToken, LockOptions, Locks, Mode,
    Renewal, Renewed,
};
use dlock_testlab::{Stop, redis::RedisServer};
use tokio::time::timeout;

use crate::support::{
    SOON, ask, attempt, brief, connect, exclusive, free, keys, millis, queue, run, says, start,
    take,
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
            // The next holder has a larger token, which hides the loss.
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

/// The last token of a name is kept for longer than any lease, also of a lock that is renewed for
/// longer than the retention, or that was acquired shortly before the retention ended.
#[test]
fn a_renewal_preserves_the_evidence_of_data_loss() {
    run(async {
        let server = start().await?;
        let client = connect(&server.url()).await?;
        for mode in [Mode::Exclusive, Mode::Shared] {
            let held = ask("a", mode);
            let token = take(&client, &held).await?;
            let last = &keys("a")[1];
            server.command(&["PEXPIRE", last, "5000"]).await?.ok()?;
            assert_eq!(renewed(&client, &held, token).await?, Renewed::Kept);
            let left = server.command(&["PTTL", last]).await?.int()?;
            assert!(left > 60_000, "{left} ms of {mode:?}");
            if mode == Mode::Exclusive {
                server.command(&["DEL", last]).await?.ok()?;
                assert_eq!(renewed(&client, &held, token).await?, Renewed::Kept);
                assert_eq!(server.command(&["EXISTS", last]).await?.int()?, 1);
            }
            free(&client, &held).await?;
            assert_eq!(renewed(&client, &held, token).await?, Renewed::Lost);
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
