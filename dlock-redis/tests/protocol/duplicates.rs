//! Duplicates that arrive late, and releases whose answer is lost.

use dlock_core::{AcquireRequest, Acquired, ClaimId, DynBackend, LockState, Released};
use dlock_testlab::{Flow, Proxy, Stop, Verdict, redis::RedisServer};
use tokio::time::{Instant, sleep};

use crate::{
    support::{
        attempt, behind, brief, connect, exclusive, free, granted, keys, mend, millis, queue, run,
        start, take, until,
    },
    tape::{Tape, replay},
};

async fn holders(client: &DynBackend) -> Result<Vec<(ClaimId, Option<u64>)>, Stop> {
    let state: LockState = client.inspect(&attempt("a").name).await?;
    Ok(state.holders.iter().map(|held| (held.claim, held.token.map(|t| t.get()))).collect())
}

/// Takes the lock so that the first, quiet half of the acquire is done and its answer lost.
async fn take_with_a_lost_answer(
    server: &RedisServer,
    proxy: &Proxy,
    client: &DynBackend,
    request: &AcquireRequest,
) -> Result<u64, Stop> {
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
fn a_late_duplicate_of_an_acquire_takes_the_lock_from_nobody() {
    run(async {
        let server = start().await?;
        let (proxy, one) = behind(&server, "").await?;
        let two = connect(&server.url()).await?;
        let mut tape = Tape::start(&server).await?;
        let (held, next, last) = (brief("a", millis(20_000)), exclusive("a"), exclusive("a"));
        let token = take_with_a_lost_answer(&server, &proxy, &one, &held).await?;
        let sent = tape.with(&held.claim.to_string()).await?;
        assert!(!sent.is_empty());
        // The quiet ones have the claim and the token in one word.
        let quiet = tape.with(&keys("a")[0]).await?;
        let quiet: Vec<_> = quiet.into_iter().filter(|command| command[0] == "SET").collect();
        assert!(!quiet.is_empty());
        let again = async || -> Verdict {
            for command in sent.iter().chain(&quiet) {
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

        // The duplicate has joined the queue, as a claim of nobody: it may be granted, by a token
        // of its own.
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
fn a_late_duplicate_of_a_quiet_acquire_is_no_grant() {
    run(async {
        let server = start().await?;
        let (one, two) = (connect(&server.url()).await?, connect(&server.url()).await?);
        let (first, quiet, other) = (exclusive("a"), exclusive("a"), exclusive("a"));
        take(&one, &first).await?;
        free(&one, &first).await?;
        let mut tape = Tape::start(&server).await?;
        take(&one, &quiet).await?;
        free(&one, &quiet).await?;
        let sent = tape.with(&keys("a")[0]).await?;
        let sent: Vec<_> = sent.into_iter().filter(|command| command[0] == "SET").collect();
        assert_eq!(sent.len(), 1, "it was taken without a script");
        let last = take(&two, &other).await?;
        free(&two, &other).await?;

        // One of a claim that is sent again by script. Its key is there, and says nothing.
        let late = exclusive("a");
        let of = |claim: ClaimId| sent[0][2].replace(&quiet.claim.to_string(), &claim.to_string());
        let ghost = of(late.claim);
        server.command(&["SET", &sent[0][1], &ghost, "NX", "PX", "30000"]).await?.text()?;
        let token = take(&one, &late).await?;
        assert!(token > last, "{token} after {last}");
        free(&one, &late).await?;
        // One of a claim that is over: nobody holds the lock by it for longer than its lease.
        let mut over = sent[0].clone();
        let lease = over.iter().position(|word| word == "PX").ok_or("it has no lease")? + 1;
        over[lease] = "400".to_owned();
        replay(&server, &over).await?.text()?;
        assert_eq!(one.acquire(&attempt("a")).await?, Acquired::Busy);
        sleep(millis(500)).await;
        // The claim of a waiter does not become the holder's by it either.
        let (held, waiting) = (exclusive("a"), brief("a", millis(900)));
        take(&two, &held).await?;
        queue(&one, &waiting).await?;
        server.command(&["SET", &sent[0][1], &of(waiting.claim), "PX", "900"]).await?.ok()?;
        let grant = granted(&one, &waiting).await?;
        assert!(grant.token.get() > token, "{} after {token}", grant.token);
        free(&one, &waiting).await
    });
}

/// Releases the lock, while somebody waits, so that the first answer is lost.
async fn is_released_at_once(quietly: bool) -> Verdict {
    let server = start().await?;
    let (proxy, one) = behind(&server, "").await?;
    let two = connect(&server.url()).await?;
    let (first, held, waiting) = (exclusive("a"), exclusive("a"), exclusive("a"));
    if quietly {
        take(&one, &first).await?;
        free(&one, &first).await?;
    }
    take(&one, &held).await?;
    queue(&two, &waiting).await?;
    let began = Instant::now();
    let mut tape = Tape::start(&server).await?;
    proxy.replies(Flow::Drop);
    let heals = async {
        until("the release has arrived", async || Ok(!tape.with(&keys("a")[0]).await?.is_empty()))
            .await?;
        mend(&proxy).await
    };
    let (released, healed) = tokio::join!(one.release(&held.as_claim()), heals);
    healed?;
    assert_eq!(released?, Released::Released);
    granted(&two, &waiting).await?;
    assert!(began.elapsed() < held.lease, "it waited for the end of the lease");
    sleep(millis(1)).await;
    free(&two, &waiting).await
}

#[test]
fn a_release_whose_answer_is_lost_frees_the_lock_for_who_waits() {
    run(is_released_at_once(false));
}

#[test]
fn a_release_of_a_quiet_acquire_whose_answer_is_lost_frees_the_lock_for_who_waits() {
    run(is_released_at_once(true));
}
