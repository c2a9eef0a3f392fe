//! Creations that a follower submits late, after their client has moved to another server.

use std::time::Duration;

use dlock_core::{AcquireRequest, Mode};
use dlock_testlab::{Door, Proxy, Stop, zookeeper::Ensemble};
use tokio::{
    task::JoinSet,
    time::{sleep, timeout},
};

use crate::support::{SOON, ask, attempt, connect, exclusive, free, lazy, run, take, until};

/// The number of late requests of each kind. The leader must process some of them after it has
/// learned that the session belongs to the follower again.
const ROUNDS: usize = 40;

/// All kinds of acquires, many times.
fn kinds() -> Result<Vec<Vec<AcquireRequest>>, Stop> {
    let mut all = Vec::new();
    for n in 0..ROUNDS {
        let name = |kind| format!("{kind}-{n}");
        all.extend([
            vec![exclusive(&name("fair"))],
            vec![attempt(&name("mutex"))],
            vec![ask(&name("reader"), Mode::Shared)],
            vec![ask(&name("semaphore"), Mode::permits(2, 3)?)],
            ["one", "two", "three"].map(|kind| exclusive(&name(kind))).to_vec(),
        ]);
    }
    Ok(all)
}

/// The epoch in these requests has ended.
#[test]
fn a_claim_that_was_given_up_makes_no_node_later() {
    run(async {
        // The follower does not start an election, even without its leader.
        let servers = Ensemble::start(&lazy().with_sync_limit(SOON * 4)).await?;
        let [old, new] = servers.followers().await?[..] else {
            return Err(Stop::failed("not two followers"));
        };
        let first = Proxy::start(&servers.nodes()[old].address()).await?;
        let second = Proxy::start(&servers.nodes()[new].address()).await?;
        second.door(Door::Closed).await?;
        let hosts = format!("{},{}", first.address(), second.address());
        let client = connect(&format!("zk://{hosts}?dlock.session_timeout=30s")).await?;
        let all = kinds()?;
        for request in all.iter().flatten() {
            take(&client, request).await?;
            free(&client, request).await?;
        }
        servers.cut_from_leader(old).await?;
        let (mut asking, mut given_up) = (JoinSet::new(), JoinSet::new());
        let all = kinds()?;
        for requests in all.clone() {
            let (sent, client) = (first.request_bytes(), client.clone());
            asking.spawn(async move {
                match &requests[..] {
                    [request] => client.acquire(request).await.map(drop),
                    all => match client.acquire_all(all) {
                        Some(answer) => answer.await.map(drop),
                        None => Ok(()),
                    },
                }
            });
            while first.request_bytes() == sent {
                sleep(Duration::from_millis(5)).await;
            }
        }
        // No caller waits for these requests.
        asking.shutdown().await;
        // The client returns to the follower, which reports that to its leader after the requests.
        let (before, sent) = (first.connections(), first.request_bytes());
        first.cut();
        until("it comes back", async || {
            Ok(first.connections() > before && first.request_bytes() > sent)
        })
        .await?;
        // Its requests reach the follower.
        sleep(Duration::from_millis(200)).await;
        for request in all.into_iter().flatten() {
            let client = client.clone();
            given_up.spawn(async move { client.release(&request.as_claim()).await });
        }
        second.door(Door::Open).await?;
        first.door(Door::Closed).await?;
        first.cut();
        while let Some(released) = timeout(SOON, given_up.join_next()).await? {
            released??;
        }
        servers.heal(old);
        servers.until_well().await?;
        // Through the follower, after the requests that it has held back.
        let other = connect(&format!("zk://{}", servers.nodes()[old].address())).await?;
        for request in kinds()?.iter().flatten() {
            let seen = other.inspect(&request.name).await?;
            assert!(seen.is_free() && seen.waiters.is_empty(), "{}: {seen:?}", request.name);
            take(&other, request).await?;
            free(&other, request).await?;
        }
        Ok(())
    })
}
