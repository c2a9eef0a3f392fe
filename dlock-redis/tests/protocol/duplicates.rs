//! Duplicates that arrive late, and releases whose answer is lost.

use dlock_core::{AcquireRequest, ClaimId, DynBackend, LockState, Released};
use dlock_testlab::{Flow, Proxy, Stop, Verdict, redis::RedisServer};
use tokio::time::Instant;

use crate::{
    replay::{Recording, replay},
    support::{
        attempt, behind, brief, connect, exclusive, free, granted, keys, mend, millis, queue, run,
        start, take, until,
    },
};

async fn holders(client: &DynBackend) -> Result<Vec<(ClaimId, Option<u64>)>, Stop> {
    let state: LockState = client.inspect(&attempt("a").name).await?;
    Ok(state.holders.iter().map(|held| (held.claim, held.token.map(|t| t.get()))).collect())
}

/// Acquires the lock. The answer to the first request is lost.
async fn take_with_a_lost_answer(
    server: &RedisServer,
    proxy: &Proxy,
    client: &DynBackend,
    request: &AcquireRequest,
) -> Result<u64, Stop> {
    // From then on, the server has the script in its cache.
    let used = exclusive("a");
    take(client, &used).await?;
    free(client, &used).await?;
    proxy.replies(Flow::Drop);
    let heals = async {
        until("it has arrived", async || {
            Ok(server.command(&["EXISTS", &keys("a")[0]]).await?.int()? == 1)
        })
        .await?;
        mend(proxy).await
    };
    let (token, healed) = tokio::join!(take(client, request), heals);
    healed.and(token)
}

#[test]
fn a_late_duplicate_of_an_acquire_does_not_take_the_lock() {
    run(async {
        let server = start().await?;
        let (proxy, one) = behind(&server, "").await?;
        let two = connect(&server.url()).await?;
        let mut recording = Recording::start(&server).await?;
        let (held, next, last) = (brief("a", millis(20_000)), exclusive("a"), exclusive("a"));
        let token = take_with_a_lost_answer(&server, &proxy, &one, &held).await?;
        let sent = recording.with(&held.claim.to_string()).await?;
        assert!(!sent.is_empty());
        let again = async || -> Verdict {
            for command in &sent {
                replay(&server, command).await?;
            }
            Ok(())
        };

        again().await?;
        assert_eq!(holders(&two).await?, [(held.claim, Some(token))], "it holds the lock");
        queue(&two, &next).await?;
        again().await?;
        assert_eq!(holders(&two).await?, [(held.claim, Some(token))], "and somebody waits");
        free(&one, &held).await?;
        let second = granted(&two, &next).await?.token.get();
        assert!(second > token);
        again().await?;
        assert_eq!(holders(&two).await?, [(next.claim, Some(second))], "somebody else holds it");
        free(&two, &next).await?;

        // The duplicate has joined the queue, although no client waits for it. It may be granted,
        // with its own token.
        let ghost = holders(&two).await?;
        assert!(ghost.iter().all(|(claim, t)| *claim == held.claim && *t > Some(second)));
        two.release(&held.as_claim()).await?;
        assert!(take(&two, &last).await? > second);
        again().await?;
        assert_eq!(holders(&two).await?.len(), 1);
        assert_eq!(holders(&two).await?[0].0, last.claim);
        free(&two, &last).await
    });
}

#[test]
fn a_release_with_a_lost_reply_still_wakes_a_waiter() {
    run(async {
        let server = start().await?;
        let (proxy, one) = behind(&server, "").await?;
        let two = connect(&server.url()).await?;
        let (held, waiting) = (exclusive("a"), exclusive("a"));
        take(&one, &held).await?;
        queue(&two, &waiting).await?;
        let began = Instant::now();
        let mut recording = Recording::start(&server).await?;
        proxy.replies(Flow::Drop);
        let heals = async {
            until("the release has arrived", async || {
                Ok(!recording.with(&keys("a")[0]).await?.is_empty())
            })
            .await?;
            mend(&proxy).await
        };
        let (released, healed) = tokio::join!(one.release(&held.as_claim()), heals);
        healed?;
        assert_eq!(released?, Released::Released);
        granted(&two, &waiting).await?;
        assert!(began.elapsed() < held.lease, "it waited for the end of the lease");
        free(&two, &waiting).await
    });
}
