//! Servers that restart without their data: nothing is granted until every lease that they may have
//! lost is over.

use dlock_core::{Acquired, ClaimId, DynBackend, Error, Queue};
use dlock_testlab::{
    Door, Flow, Proxy, Stop,
    redis::{Options, RedisMasters, RedisServer},
};
use tokio::time::sleep;

use crate::support::{
    SOON, ask, assert_unavailable, beside, connect, millis, secs, take, with_redis, within,
};

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

        // Of those that hold the lock, one loses it, and one is unreachable.
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
