//! Finding the master: sentinels that are down, hang, or are outdated, and servers that turn out to be
//! replicas.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use dlock_testlab::{
    Stop,
    redis::{Options, RedisSentinel, RedisServer},
};
use tokio::time::sleep;

use crate::support::{
    LEASE, SOON, ask, assert_unavailable, beside, clients, connect, locks, millis, secs, take,
    until, with_redis, within,
};

/// Waits so long for an answer that it does nothing soon whenever it waits for one that hangs.
fn patient(servers: &RedisSentinel) -> String {
    format!("{}?dlock.response_timeout=60s", servers.url())
}

pub(crate) fn an_unknown_master_or_dead_sentinels_give_a_remedy() {
    with_redis(async {
        let servers = RedisSentinel::start(&Options::new()).await?;
        let unknown = servers.url().replace(servers.master_name(), "nobody");
        let error = within(SOON, connect(&unknown)).await?.unwrap_err();
        assert_unavailable(&error, &["nobody", "SENTINEL MASTERS", "redis+sentinel://"]);

        // With one down, and with one that hangs, the others will do.
        let sentinels = servers.sentinel_servers();
        sentinels[0].kill();
        within(SOON, connect(&servers.url())).await??;
        sentinels[0].restart().await?;
        sentinels[1].pause()?;
        within(SOON, connect(&patient(&servers))).await??;
        sentinels[1].resume()?;

        for sentinel in sentinels {
            sentinel.kill();
        }
        let error = within(SOON, connect(&servers.url())).await?.unwrap_err();
        assert_unavailable(&error, &["no sentinel answers: check that they run"]);
        Ok(())
    });
}

/// One sentinel sleeps through a failover, and names the old master when it wakes up.
pub(crate) fn an_outdated_sentinel_does_not_lead_to_the_old_master() {
    with_redis(async {
        for _ in 0..5 {
            if stays_with_the_new_master().await? {
                return Ok(());
            }
        }
        Err(Stop::failed("the sentinels replace one master after the other"))
    });
}

/// Fails when a client leaves the new master; `false` when the others replace that one, too, because
/// it takes long to answer on a busy machine.
async fn stays_with_the_new_master() -> Result<bool, Stop> {
    let servers = RedisSentinel::start(&Options::new()).await?;
    let locks = locks(&patient(&servers), LEASE).await?;
    let guard = locks.mutex("held")?.lock().await?;
    servers.until_in_sync().await?;
    let stale = &servers.sentinel_servers()[2];
    stale.pause()?;
    let dead = servers.kill_master().await?;
    servers.until_failed_over(&dead.address()).await?;
    let master = servers.master_server().await?;
    // A hanging sentinel delays no client.
    drop(within(SOON, locks.mutex("a")?.lock()).await??);

    dead.restart().await?;
    let before = clients(master).await?;
    stale.resume()?;
    for _ in 0..30 {
        drop(within(SOON, locks.mutex("b")?.lock()).await??);
        sleep(millis(100)).await;
    }
    let after = clients(master).await?;
    sleep(secs(1)).await;
    if after != before && servers.master_server().await?.port() != master.port() {
        println!("the new master was replaced, too");
        return Ok(false);
    }
    assert_eq!(after, before, "the connection is the same all the time");
    within(SOON, guard.release()).await??;
    Ok(true)
}

pub(crate) fn a_demoted_master_is_an_error_until_it_is_master_again() {
    with_redis(async {
        let server = RedisServer::start(&Options::new()).await?;
        let other = RedisServer::start(&Options::new()).await?;
        let backend = connect(&server.url()).await?;
        take(&backend, &ask("a", secs(30))).await?;
        let port = other.port().to_string();
        server.command(&["REPLICAOF", "127.0.0.1", &port]).await?.ok()?;
        let refused = within(SOON, backend.acquire(&ask("b", secs(30)))).await?;
        assert_unavailable(&refused.unwrap_err(), &["read-only replica", "redis+sentinel://"]);
        let error = within(SOON, connect(&server.url())).await?.unwrap_err();
        assert_unavailable(&error, &["read-only replica"]);

        server.command(&["REPLICAOF", "NO", "ONE"]).await?.ok()?;
        until("the master is found again", async || {
            Ok(backend.acquire(&ask("c", secs(30))).await.is_ok())
        })
        .await
    });
}

/// Between the moment when the old master becomes a replica and the moment when the sentinels say
/// so, commands are refused; they are retried elsewhere.
pub(crate) fn a_failover_under_load_causes_no_errors() {
    with_redis(async {
        let servers = RedisSentinel::start(&Options::new()).await?;
        let locks = locks(&servers.url(), secs(10)).await?;
        let stop = Arc::new(AtomicBool::new(false));
        let tasks: Vec<_> = (0..16)
            .map(|i| {
                let (locks, stop) = (locks.clone(), Arc::clone(&stop));
                beside(async move {
                    let (lock, mut last, mut turns) = (locks.mutex(format!("busy/{i}"))?, 0, 0);
                    while !stop.load(Ordering::Relaxed) {
                        let guard = lock.lock().await?;
                        let token = guard.token().get();
                        assert!(token > last, "{token} after {last}");
                        (last, turns) = (token, turns + 1);
                        // A release that reached a former master is lost.
                        let _ = guard.release().await;
                    }
                    Ok::<_, dlock_core::Error>(turns)
                })
            })
            .collect();
        sleep(millis(300)).await;
        servers.failover().await?;
        sleep(secs(2)).await;
        stop.store(true, Ordering::Relaxed);
        for task in tasks {
            assert!(within(SOON, task).await??? > 0);
        }
        Ok(())
    });
}
