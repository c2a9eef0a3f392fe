//! Many waiters, the held locks of the same client, and how long a position in the queue lasts.

use std::time::Duration;

use dlock_core::{AcquireRequest, Acquired, DynBackend};
use dlock_testlab::{
    Flow, Proxy, Stop, Verdict,
    redis::{Options, RedisMasters, RedisServer},
};
use futures_util::future::{join, join_all, try_join_all};

use crate::support::{
    KEYS_OF_A, connect, exclusive, free, granted, queue, renew, run, start, take, until, works,
    works_fully,
};

/// The number of concurrent acquires.
const CROWD: usize = 2000;
/// The limits of acquires and of polls, of up to 100 claims each, under way at a time.
const ACQUIRES: usize = 256;
const POLLS: u64 = 4;

/// A long timeout for a busy machine.
async fn behind(server: &RedisServer, scheme: &str) -> Result<(Proxy, DynBackend), Stop> {
    let proxy = Proxy::start(&server.address()).await?;
    let url = format!("{scheme}{}?dlock.response_timeout=60s", proxy.address());
    let client = connect(&url).await?;
    Ok((proxy, client))
}

/// How many scripts the server has run.
async fn scripts(server: &RedisServer) -> Result<u64, Stop> {
    let stats = server.info("commandstats").await?;
    let calls = stats.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls="));
    Ok(calls.map_or(Ok(0), |calls| calls.split(',').next().unwrap_or_default().parse())?)
}

/// Waits until the server has released the lock `b` and renewed `a`, although no answer arrives.
async fn come_through(server: &RedisServer) -> Verdict {
    until("the renewal and the release come through", async || {
        let left = server.command(&["PTTL", KEYS_OF_A[0]]).await?.int()?;
        let is_held = server.keys("dlock:*}:b").await?.len() == 1;
        Ok(left > 60_000 && !is_held)
    })
    .await
}

/// Runs the checks while the server gets all requests, and the client gets no answer.
async fn unanswered(
    proxy: &Proxy,
    client: &DynBackend,
    crowd: impl Future<Output = Verdict>,
    held: [&AcquireRequest; 2],
    check: impl Future<Output = Verdict>,
    renewed: impl Future<Output = Verdict>,
) -> Verdict {
    let urgent = async { join(renew(client, held[0]), free(client, held[1])).await };
    let watched = async {
        check.await?;
        // Sent after all other requests.
        let (urgent, through) = join(urgent, async {
            let through = renewed.await;
            proxy.pass().await?;
            through
        })
        .await;
        through?;
        urgent.0?;
        urgent.1
    };
    let (crowd, watched) = join(crowd, watched).await;
    watched?;
    crowd
}

#[test]
fn renewals_and_releases_do_not_wait_behind_many_acquires() {
    run(async {
        let (server, other) = start().await?;
        let (proxy, client) = behind(&server, "redis://").await?;
        // From then on, the server has all scripts in its cache.
        works_fully(&client, &other, "known").await?;
        let held = ["a", "b"].map(exclusive);
        for request in &held {
            take(&client, request).await?;
        }
        let crowd: Vec<_> = (0..CROWD).map(|n| exclusive(&format!("crowd-{n}"))).collect();
        let of_crowd = async || Ok::<_, Stop>(server.keys("dlock:*}:crowd-*").await?.len());
        server.command(&["PEXPIRE", KEYS_OF_A[0], "60000"]).await?.ok()?;
        proxy.replies(Flow::Hold);
        let acquires = async {
            let answers = join_all(crowd.iter().map(|request| client.acquire(request))).await;
            for answer in answers {
                assert!(matches!(answer?, Acquired::Granted(_)));
            }
            Ok(())
        };
        let check = until("the crowd comes", async || Ok(of_crowd().await? >= ACQUIRES));
        let renewed = async {
            come_through(&server).await?;
            assert_eq!(of_crowd().await?, ACQUIRES, "so many of {CROWD} were sent before them");
            Ok(())
        };
        unanswered(&proxy, &client, acquires, [&held[0], &held[1]], check, renewed).await?;
        assert_eq!(of_crowd().await?, CROWD);
        assert!(other.inspect(&held[1].name).await?.is_free());
        Ok(())
    });
}

#[test]
fn renewals_and_releases_do_not_wait_behind_many_polls() {
    run(async {
        let (server, other) = start().await?;
        let (proxy, client) = behind(&server, "redis://").await?;
        // From then on, the server has all scripts in its cache.
        works_fully(&client, &other, "known").await?;
        let held = ["a", "b"].map(exclusive);
        for request in &held {
            take(&client, request).await?;
        }
        let hot = exclusive("hot");
        take(&other, &hot).await?;
        let crowd: Vec<_> = (0..CROWD).map(|_| exclusive("hot")).collect();
        try_join_all(crowd.iter().map(|request| queue(&client, request))).await?;
        server.command(&["PEXPIRE", KEYS_OF_A[0], "60000"]).await?.ok()?;
        // Each claim is polled once, because it has no listener.
        proxy.replies(Flow::Hold);
        let before = scripts(&server).await?;
        let asked = async || Ok::<_, Stop>(scripts(&server).await? - before);
        let check = until("they are asked about", async || Ok(asked().await? >= POLLS));
        let renewed = async {
            come_through(&server).await?;
            // Including the renewal and the release.
            assert!(asked().await? <= POLLS + 3, "{} scripts were sent", asked().await?);
            Ok(())
        };
        let nobody = async { Ok(()) };
        unanswered(&proxy, &client, nobody, [&held[0], &held[1]], check, renewed).await?;
        let steps = u64::try_from(CROWD / 100).unwrap_or(u64::MAX);
        until("all are asked about", async || Ok(asked().await? >= steps)).await?;
        let waiters = other.inspect(&hot.name).await?.waiters;
        assert_eq!(waiters.len(), CROWD);
        Ok(())
    });
}

/// The limit applies to the connection of each master.
#[test]
fn a_master_of_a_quorum_gets_a_bounded_number_of_requests() {
    run(async {
        let masters = RedisMasters::start(3, &Options::new()).await?;
        let mut proxies = Vec::new();
        for server in masters.servers() {
            proxies.push(Proxy::start(&server.address()).await?);
        }
        let addresses: Vec<_> = proxies.iter().map(Proxy::address).collect();
        let options = "dlock.restart_guard=0s&dlock.response_timeout=60s";
        let url = format!("redis+quorum://{}?{options}", addresses.join(","));
        let client = connect(&url).await?;
        works(&client, "known").await?;
        let held = exclusive("a");
        take(&client, &held).await?;
        let lasts = async |millis: i64| {
            let mut longer = 0;
            for server in masters.servers() {
                let left = server.command(&["PTTL", KEYS_OF_A[0]]).await?.int()?;
                longer += usize::from(left > millis);
            }
            Ok::<_, Stop>(longer)
        };
        for server in masters.servers() {
            server.command(&["PEXPIRE", KEYS_OF_A[0], "60000"]).await?.ok()?;
        }
        for proxy in &proxies {
            proxy.replies(Flow::Hold);
        }
        let crowd: Vec<_> = (0..CROWD).map(|n| exclusive(&format!("crowd-{n}"))).collect();
        let of_crowd = async || {
            let all = masters.keys("dlock:*}:crowd-*").await?;
            Ok::<_, Stop>(all.iter().map(Vec::len).collect::<Vec<_>>())
        };
        let acquires = join_all(crowd.iter().map(|request| client.acquire(request)));
        let watched = async {
            until("the crowd comes", async || {
                Ok(of_crowd().await?.iter().all(|sent| *sent >= ACQUIRES))
            })
            .await?;
            let renewal = async {
                let through =
                    until("the renewal comes through", async || Ok(lasts(60_000).await? == 3));
                through.await?;
                assert_eq!(of_crowd().await?, [ACQUIRES; 3], "of {CROWD}");
                for proxy in &proxies {
                    proxy.pass().await?;
                }
                Ok::<_, Stop>(())
            };
            let (renewed, watched) = join(renew(&client, &held), renewal).await;
            watched?;
            renewed
        };
        let (answers, watched) = join(acquires, watched).await;
        watched?;
        for answer in answers {
            assert!(matches!(answer?, Acquired::Granted(_)));
        }
        Ok(())
    });
}

/// The lease of a waiter, much shorter than that of the holder. The waiter polls every 3 s.
const BRIEF: Duration = Duration::from_secs(60);
/// The keys of the queue and the waiters.
const OF_THE_QUEUE: [&str; 2] = [KEYS_OF_A[2], KEYS_OF_A[3]];

fn brief() -> AcquireRequest {
    exclusive("a").with_lease(BRIEF)
}

/// Returns whether the keys of the queue outlive the leases in it.
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
    let url = server.url();
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
        // Simulates that half of the waiters' lease has passed.
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
