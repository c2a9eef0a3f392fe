//! Heartbeats: their number with many locks, and the local deadline of a stopped client.

use std::{thread, time::Duration};

use dlock_core::{Clock, Instant};
use dlock_testkit::Stop;
use futures_util::{FutureExt, future::try_join_all};
use zookeeper_client::{Acls, Client, CreateMode};

use crate::support::{connect, exclusive, raw, renew, run, server, take, until};

/// The timeout of a session that a stop of its client does not end.
const TIMEOUT: Duration = Duration::from_secs(4);

/// The length of the pause of the client. A lease of half a timeout that begins after it ends more
/// than a timeout after the last heartbeat before it.
const STOP: Duration = Duration::from_millis(2500);

/// Returns the number of a transaction that creates and removes a node.
async fn transaction(raw: &Client) -> Result<i64, Stop> {
    let mode = CreateMode::Ephemeral.with_acls(Acls::anyone_all());
    let (stat, _) = raw.create("/mark", b"", &mode).await?;
    raw.delete("/mark", None).await?;
    Ok(stat.czxid)
}

/// A heartbeat is a transaction, and so is the marker of this test.
#[test]
fn concurrent_renewals_share_a_heartbeat() {
    run(async {
        let server = server().await?;
        let raw = raw(&server).await?;
        // This client sends no heartbeat during the test.
        let url = format!("zk://{}?dlock.session_timeout=60s", server.address());
        let client = connect(&url).await?;
        let claims: Vec<_> = (0..32).map(|n| exclusive(&n.to_string())).collect();
        for claim in &claims {
            take(&client, claim).await?;
        }
        let before = transaction(&raw).await?;
        try_join_all(claims.iter().map(|claim| renew(&client, claim))).await?;
        let together = transaction(&raw).await? - before - 2;
        assert_eq!(together, 1);

        // The caller that requested the proof first may be dropped or paused while others wait for
        // it.
        for goes in [true, false] {
            let mut first = Box::pin(renew(&client, &claims[0]));
            let rest = claims[1..].iter().map(|claim| renew(&client, claim));
            let mut others = Box::pin(try_join_all(rest));
            assert!(first.as_mut().now_or_never().is_none());
            assert!(others.as_mut().now_or_never().is_none());
            if goes {
                drop(first);
                others.await?;
            } else {
                others.await?;
                first.await?;
            }
        }
        Ok(())
    })
}

/// Returns the session that owns the node of a lock.
async fn session_of(raw: &Client, lock: &str) -> Result<i64, Stop> {
    let dir = format!("/dlock/{lock}");
    let nodes = raw.list_children(&dir).await?;
    let [node] = nodes.as_slice() else { return Err(Stop::failed(format!("{nodes:?}"))) };
    let stat = raw.check_stat(&format!("{dir}/{node}")).await?;
    stat.map(|stat| stat.ephemeral_owner).ok_or_else(|| Stop::failed("no node"))
}

/// Acquires a lock before and after a pause of the whole client. `None` if the session did not
/// survive it, else the end of the stop, the time of the grant, and the holder's local deadline.
async fn relies_after_a_stop(attempt: usize) -> Result<Option<[Instant; 4]>, Stop> {
    let server = server().await?;
    let raw = raw(&server).await?;
    let url = format!("zk://{}?dlock.session_timeout={}s", server.address(), TIMEOUT.as_secs());
    let client = connect(&url).await?;
    let (before, mut after) = (exclusive("before"), exclusive(&format!("after-{attempt}")));
    after.lease = client.longest_lease();
    take(&client, &before).await?;
    let session = session_of(&raw, "before").await?;
    let stopped = Clock::Boot.now();
    // The whole client runs on this thread.
    thread::sleep(STOP);
    let resumed = Clock::Boot.now();
    // The proof may take longer than an attempt.
    let mut grant = None;
    until("it is granted", async || {
        grant = take(&client, &after).await.ok();
        Ok(grant.is_some())
    })
    .await?;
    let Some(grant) = grant else { return Err(Stop::failed("no grant")) };
    let until = grant.since.saturating_add(after.lease);
    let times = [stopped, resumed, Clock::Boot.now(), until];
    Ok((session_of(&raw, &format!("after-{attempt}")).await? == session).then_some(times))
}

/// The servers may end a session one timeout after its last heartbeat, and a request after a pause
/// does not reach their leader as one. So either the local deadline passes by then, or the client
/// has needed a quarter of a timeout to prove that the servers get its heartbeats again.
#[test]
fn a_stopped_client_relies_on_no_lock_after_its_session() {
    run(async {
        for attempt in 0..10 {
            let Some([stopped, resumed, granted, until]) = relies_after_a_stop(attempt).await?
            else {
                continue;
            };
            let proven_again = granted.since(resumed) >= TIMEOUT / 4;
            assert!(
                proven_again || until <= stopped.saturating_add(TIMEOUT),
                "it relies on the lock for {:?} from its stop on, and the servers keep it for {TIMEOUT:?}",
                until.since(stopped)
            );
            return Ok(());
        }
        Err(Stop::failed("no session survived its stop"))
    })
}
