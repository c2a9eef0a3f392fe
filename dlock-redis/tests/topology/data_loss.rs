//! Lost data: grants that replicas must confirm, and servers that restart without their data.

use dlock_core::{
    AcquireRequest, Acquired, Certainty, ClaimId, DynBackend, Ended, Error, GuardState, Queue,
    Released,
};
use dlock_testlab::{
    Door, Flow, Proxy, Stop, Verdict,
    redis::{Options, RedisMasters, RedisSentinel, RedisServer},
};
use tokio::time::sleep;

use crate::{
    nodes::Nodes,
    support::{
        SOON, ask, assert_unavailable, beside, connect, locks, millis, queue, secs, take, until,
        with_redis, within,
    },
};

/// Takes a lock as soon as replicas listen, which may be a while after they are in sync.
async fn take_soon(backend: &DynBackend, request: &AcquireRequest) -> Verdict {
    until("replicas know of a grant", async || Ok(backend.acquire(request).await.is_ok())).await
}

pub(crate) fn a_grant_without_replicas_is_refused_and_released() {
    with_redis(async {
        let servers = RedisSentinel::start(&Options::new()).await?;
        let url = format!("{}?dlock.durability=1&dlock.response_timeout=4s", servers.url());
        let backend = connect(&url).await?;
        let known = ask("known", secs(60));
        take_soon(&backend, &known).await?;
        let waits = ask("known", secs(60));
        queue(&backend, &waits).await?;

        let replicas = &servers.servers()[1..];
        for replica in replicas {
            replica.pause()?;
        }
        let refused = ask("refused", secs(60));
        let error = within(SOON, backend.acquire(&refused)).await?.unwrap_err();
        assert_unavailable(&error, &["only 0 of 1 replicas have the lease", "dlock.durability"]);
        assert_eq!(error.certainty(), Certainty::Unknown);
        assert_eq!(backend.release(&refused.as_claim()).await?, Released::Released);
        assert!(backend.inspect(&refused.name).await?.is_free());

        // A hand-off that only the master has received does not count either.
        backend.release(&known.as_claim()).await?;
        let error = within(SOON, backend.granted(&waits)).await?.unwrap_err();
        assert_unavailable(&error, &["0 of 1 replicas"]);
        for replica in replicas {
            replica.resume()?;
        }
        within(SOON, take(&backend, &waits)).await??;
        within(SOON, take(&backend, &refused)).await??;
        Ok(())
    });
}

/// With guards, no error is visible: a waiting caller gets the lock once the replicas are back.
pub(crate) fn a_waiters_grant_reaches_replicas_and_a_new_master() {
    with_redis(async {
        let servers = RedisSentinel::start(&Options::new()).await?;
        let url = format!("{}?dlock.durability=majority", servers.url());
        // Longer than a failover on a busy machine.
        let lease = secs(30);
        let (one, two) = (locks(&url, lease).await?, locks(&url, lease).await?);
        let guard = one.mutex("a")?.lock().await?;
        let lock = two.mutex("a")?;
        let waiting = beside(async move { lock.lock().await });
        sleep(millis(200)).await;
        for replica in &servers.servers()[1..] {
            replica.pause()?;
        }
        let tried = within(SOON, two.mutex("b")?.try_lock()).await?;
        assert_unavailable(&tried.unwrap_err(), &["0 of 1 replicas"]);
        guard.release().await?;
        sleep(secs(1)).await;
        assert!(!waiting.is_finished());
        for replica in &servers.servers()[1..] {
            replica.resume()?;
        }
        let next = within(SOON, waiting).await???;
        until("what was refused is taken back", async || Ok(two.inspect("b").await?.is_free()))
            .await?;

        // Without a delay: the new master must have the grant.
        let dead = servers.kill_master().await?;
        servers.until_failed_over(&dead.address()).await?;
        let held = one.inspect("a").await?;
        assert_eq!(held.holders.first().and_then(|holder| holder.token), Some(next.token()));
        sleep(secs(2)).await;
        // The first renewals on a new master may fail: its replica has to connect again.
        until("the guard is sure", async || Ok(next.state() == GuardState::Held)).await?;
        within(SOON, next.release()).await??;
        Ok(())
    });
}

/// A replica that takes over must not end a lease before the holder's local deadline.
pub(crate) fn a_renewal_without_replicas_does_not_count() {
    with_redis(async {
        let servers = RedisSentinel::start(&Options::new()).await?;
        let url = format!("{}?dlock.durability=1&dlock.response_timeout=2s", servers.url());
        let locks = locks(&url, secs(3)).await?;
        // Exclusive and shared holders are renewed by different scripts.
        let mut guards = Vec::new();
        until("replicas know of grants", async || {
            guards.clear();
            let (writer, readers) = (locks.mutex("a")?, locks.rw("b")?);
            guards.extend(writer.try_lock().await.ok().flatten());
            guards.extend(readers.read().try_lock().await.ok().flatten());
            Ok(guards.len() == 2)
        })
        .await?;
        servers.cut_replicas().await?;
        for guard in &guards {
            // The master still knows the lease, and answers every renewal.
            assert_eq!(within(SOON, guard.lost()).await?, Ended::Expired);
        }
        Ok(())
    });
}

pub(crate) fn durability_applies_to_every_bucket_of_a_cluster() {
    with_redis(async {
        let nodes = Nodes::start().await?;
        let replica_first = format!(
            "redis+cluster://{},{}?dlock.durability=majority&dlock.response_timeout=4s",
            nodes.0.nodes()[5].address(),
            nodes.0.nodes()[0].address(),
        );
        let url = format!("{}?dlock.durability=1&dlock.response_timeout=4s", nodes.url());
        let backend = connect(&url).await?;
        for i in 0..30 {
            take_soon(&backend, &ask(&format!("durable/{i}"), secs(60))).await?;
        }
        let (from, to) = (nodes.master("a").await?, nodes.another("a").await?);
        nodes.0.move_slot(nodes.slot("a").await?, from, to).await?;
        take(&backend, &ask("a", secs(60))).await?;

        let later = connect(&replica_first).await?;
        nodes.0.replica_of(nodes.master("b").await?).await?.pause()?;
        for (client, which) in [(&backend, "1"), (&later, "majority")] {
            let refused = ask("b", secs(60));
            let error = within(SOON, client.acquire(&refused)).await?.expect_err(which);
            assert_unavailable(&error, &["0 of 1 replicas"]);
            client.release(&refused.as_claim()).await?;
        }
        Ok(())
    });
}

/// Longer than the guard of these tests.
const GROWN_UP: std::time::Duration = millis(7200);

async fn tried(backend: &DynBackend, name: &str) -> Result<Acquired, Error> {
    let request = ask(name, secs(6)).with_queue(Queue::FailIfBusy);
    backend.acquire(&request).await
}

/// A master that comes back without its data would vote twice.
pub(crate) fn a_master_does_not_vote_soon_after_its_start() {
    with_redis(async {
        let masters = RedisMasters::start(3, &Options::new()).await?;
        let guarded = format!("{}?dlock.restart_guard=6s", masters.url());
        let backend = connect(&guarded).await?;
        let error = tried(&backend, "a").await.unwrap_err();
        assert_unavailable(&error, &["2 of 3 masters", "restarted a short while ago"]);
        sleep(GROWN_UP).await;
        take(&backend, &ask("held", secs(6))).await?;

        // Of the masters that have the claim, one loses it, and one is unreachable.
        let [first, second, _] = masters.servers() else { unreachable!() };
        second.restart().await?;
        first.kill();
        sleep(millis(300)).await;
        let other = connect(&guarded).await?;
        for _ in 0..4 {
            for client in [&backend, &other] {
                for name in ["held", "free"] {
                    let error = tried(client, name).await.unwrap_err();
                    assert_unavailable(&error, &["2 of 3 masters"]);
                }
            }
            sleep(millis(150)).await;
        }
        sleep(GROWN_UP).await;
        for client in [&backend, &other] {
            let name = ClaimId::random().to_string();
            assert!(matches!(tried(client, &name).await?, Acquired::Granted(_)));
        }
        Ok(())
    });
}

/// Restarts a server while a request to it is delayed by the proxy, or waits for a connection.
/// Returns whether the answer was a grant.
async fn asked_across_a_restart(
    backend: &DynBackend,
    server: &RedisServer,
    proxy: &Proxy,
    held_up: bool,
) -> Result<Result<Acquired, Error>, Stop> {
    match held_up {
        true => proxy.requests(Flow::Hold),
        false => {
            proxy.door(Door::Closed).await?;
            proxy.cut();
            sleep(millis(200)).await;
        }
    }
    let asked = backend.clone();
    let asking = beside(async move { tried(&asked, "a").await });
    sleep(millis(100)).await;
    server.restart().await?;
    proxy.cut();
    proxy.pass().await?;
    Ok(within(SOON, asking).await??)
}

pub(crate) fn a_server_restarted_during_a_request_grants_nothing() {
    with_redis(async {
        let server = RedisServer::start(&Options::new()).await?;
        let proxy = Proxy::start(&server.address()).await?;
        for held_up in [true, false] {
            let url = format!("redis://{}?dlock.restart_guard=6s", proxy.address());
            let backend = connect(&url).await?;
            sleep(GROWN_UP).await;
            let answer = asked_across_a_restart(&backend, &server, &proxy, held_up).await?;
            assert!(answer.is_err(), "held up {held_up}: {answer:?}");
        }
        Ok(())
    });
}

pub(crate) fn a_master_restarted_during_a_request_does_not_vote() {
    with_redis(async {
        let masters = RedisMasters::start(3, &Options::new()).await?;
        let [gone, well, restarts] = masters.servers() else { unreachable!() };
        let proxy = Proxy::start(&restarts.address()).await?;
        let addresses = [gone.address(), well.address(), proxy.address()].join(",");
        let url = format!("redis+quorum://{addresses}?dlock.restart_guard=6s");
        let backend = connect(&url).await?;
        sleep(GROWN_UP).await;
        gone.kill();
        sleep(millis(200)).await;
        let answer = asked_across_a_restart(&backend, restarts, &proxy, true).await?;
        assert!(answer.is_err(), "{answer:?}");
        Ok(())
    });
}
