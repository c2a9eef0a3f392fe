//! A position in the queue lasts while its waiter polls, whatever the leases of others are.

use std::time::Duration;

use dlock_core::AcquireRequest;
use dlock_testlab::{Stop, Verdict, redis::RedisServer};

use crate::support::{
    KEYS_OF_A, connect, exclusive, free, granted, queue, renew, run, start, take, until,
};

/// The lease of a waiter, much shorter than that of the holder. The waiter polls every 3 s.
const BRIEF: Duration = Duration::from_secs(60);
/// The keys of the queue and the waiters.
const OF_THE_QUEUE: [&str; 2] = [KEYS_OF_A[2], KEYS_OF_A[3]];

fn brief() -> AcquireRequest {
    exclusive("a").with_lease(BRIEF)
}

/// Whether the keys of the queue live for longer than the leases in it.
async fn outlive_a_lease(server: &RedisServer) -> Result<bool, Stop> {
    for key in OF_THE_QUEUE {
        let left = u64::try_from(server.command(&["PTTL", key]).await?.int()?);
        if left.is_err() {
            return Err(Stop::failed(format!("{key} has gone or never ends")));
        }
        if left.is_ok_and(|left| Duration::from_millis(left) <= BRIEF) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Waits behind a holder whose renewals make the last token live for much longer than the queue.
async fn keeps_its_position(more: usize) -> Verdict {
    let (server, _) = start().await?;
    let url = format!("{}?dlock.retention=1s", server.url());
    let (one, two) = (connect(&url).await?, connect(&url).await?);
    let (held, waiting) = (exclusive("a"), brief());
    take(&one, &held).await?;
    queue(&two, &waiting).await?;
    let behind: Vec<_> = (0..more).map(|_| brief()).collect();
    for request in &behind {
        queue(&two, request).await?;
    }
    for _ in 0..2 {
        renew(&one, &held).await?;
        // As if half of the waiters' lease had gone by.
        for key in OF_THE_QUEUE {
            server.command(&["PEXPIRE", key, "30000"]).await?.ok()?;
        }
        let asked =
            async { until("it has shown life", async || outlive_a_lease(&server).await).await };
        tokio::select! {
            grant = granted(&two, &waiting) => return Err(Stop::failed(format!("{grant:?}"))),
            asked = asked => asked?,
        }
    }
    let order: Vec<_> =
        [&waiting].into_iter().chain(&behind).map(|request| request.claim).collect();
    let seen = one.inspect(&held.name).await?.waiters;
    assert_eq!(seen.iter().map(|waiter| waiter.claim).collect::<Vec<_>>(), order);
    free(&one, &held).await?;
    granted(&two, &waiting).await?;
    free(&two, &waiting).await
}

#[test]
fn a_waiter_keeps_its_position_behind_a_longer_lease() {
    run(keeps_its_position(0));
}

#[test]
fn waiters_keep_their_order_behind_a_longer_lease() {
    run(keeps_its_position(3));
}
