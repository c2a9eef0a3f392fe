//! Clients of a master that sentinels report: how they find it, and failovers.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use dlock_core::{Guard, GuardState, Level, Locks};
use dlock_testlab::{
    Stop, Verdict,
    redis::{Options, RedisSentinel, RedisServer},
};
use tokio::time::sleep;

use crate::support::{
    LEASE, SOON, ask, assert_unavailable, beside, clients, connect, locks, millis, secs, take,
    until, until_copied, with_redis, within,
};

const HELD: usize = 8;

/// One client that holds locks, another one that waits for the first of them.
struct Scene {
    lease: Duration,
    servers: RedisSentinel,
    holder: Locks,
    other: Locks,
    guards: Vec<Guard>,
    /// The largest token so far.
    last: u64,
}

impl Scene {
    /// The lease has to outlast the failover.
    async fn open(lease: Duration) -> Result<Self, Stop> {
        let servers = RedisSentinel::start(&Options::new()).await?;
        // Sentinels that find the master down at the same time may fail over twice in a row, and
        // the second time to a replica that has discarded its data.
        for follower in &servers.sentinel_servers()[1..] {
            let never = ["SENTINEL", "SET", servers.master_name(), "quorum", "4"];
            follower.command(&never).await?.ok()?;
        }
        let holder = locks(&servers.url(), lease).await?;
        let other = locks(&servers.url(), lease).await?;
        Ok(Self { lease, servers, holder, other, guards: Vec::new(), last: 0 })
    }

    /// Acquires all locks, and waits until the replicas have them.
    async fn hold(&mut self) -> Verdict {
        for i in 0..HELD {
            let lock = self.holder.mutex(format!("held/{i}"))?;
            self.guards.push(within(SOON, lock.lock()).await??);
        }
        self.note();
        self.servers.until_in_sync().await?;
        let master = self.servers.master_server().await?;
        for server in self.servers.servers() {
            until_copied(master, server).await?;
        }
        Ok(())
    }

    /// Records the largest token. Those of different names need not differ.
    fn note(&mut self) {
        let tokens = self.guards.iter().map(|guard| guard.token().get());
        self.last = tokens.max().unwrap_or_default().max(self.last);
    }

    /// A failover while a claim waits for the first lock. Afterwards the waiter gets that lock, and
    /// the new master has all other locks.
    async fn across<T>(
        &mut self,
        failover: impl AsyncFnOnce(&RedisSentinel) -> Result<T, Stop>,
    ) -> Result<T, Stop> {
        let waiting = self.other.mutex("held/0")?;
        let waiting = beside(async move { waiting.lock().await });
        sleep(millis(200)).await;
        let result = failover(&self.servers).await?;
        // Longer than a lease: the locks that are still held were renewed at the new master.
        sleep(self.lease + millis(500)).await;
        for guard in &self.guards {
            let (name, state) = (guard.name(), guard.state());
            let held = self.other.inspect(name.as_str()).await?;
            let there = held.holders.iter().any(|holder| holder.token == Some(guard.token()));
            assert_eq!(state != GuardState::Lost, there, "{name} is {state:?}: {held:?}");
            assert_ne!(state, GuardState::Lost, "the replicas knew of {name}: {:?}", guard.check());
        }
        let first = self.guards.remove(0);
        within(SOON, first.release()).await??;
        let next = within(SOON, waiting).await???;
        assert!(next.token().get() > self.last, "tokens rise across a failover");
        self.last = next.token().get();
        within(SOON, next.release()).await??;
        for guard in self.guards.drain(..) {
            within(SOON, guard.release()).await??;
        }
        Ok(result)
    }
}

pub(crate) fn locks_and_waiters_survive_a_requested_failover() {
    with_redis(async {
        let mut scene = Scene::open(secs(15)).await?;
        scene.hold().await?;
        scene.across(async |servers| servers.failover().await).await?;
        // The old master is a replica of the new one by now; the next failover goes back to it.
        scene.servers.until_in_sync().await?;
        scene.hold().await?;
        scene.across(async |servers| servers.failover().await).await?;
        Ok(())
    });
}

pub(crate) fn locks_and_waiters_survive_a_killed_master() {
    with_redis(async {
        let mut scene = Scene::open(secs(15)).await?;
        scene.hold().await?;
        scene
            .across(async |servers| {
                let dead = servers.kill_master().await?;
                servers.until_failed_over(&dead.address()).await?;
                dead.restart().await?;
                servers.until_in_sync().await
            })
            .await
    });
}

pub(crate) fn locks_and_waiters_survive_a_hanging_master() {
    with_redis(async {
        let mut scene = Scene::open(secs(15)).await?;
        scene.hold().await?;
        scene
            .across(async |servers| {
                let paused = servers.pause_master().await?;
                servers.until_failed_over(&paused.address()).await?;
                sleep(millis(500)).await;
                paused.resume()?;
                servers.until_in_sync().await
            })
            .await
    });
}

/// Returns a URL with a long response timeout, so that a test notices each wait for a server that
/// hangs.
fn patient(servers: &RedisSentinel) -> String {
    format!("{}?dlock.response_timeout=60s", servers.url())
}

pub(crate) fn an_unknown_master_or_dead_sentinels_give_a_remedy() {
    with_redis(async {
        let servers = RedisSentinel::start(&Options::new()).await?;
        let unknown = servers.url().replace(servers.master_name(), "nobody");
        let error = within(SOON, connect(&unknown)).await?.unwrap_err();
        assert_unavailable(&error, &["nobody", "SENTINEL MASTERS", "redis+sentinel://"]);

        // If one sentinel is down or hangs, the others are sufficient.
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

/// One sentinel is paused during a failover, and reports the old master afterwards.
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

/// Fails if a client leaves the new master. Returns `false` if the sentinels replace that one, too,
/// because it answers late on a busy machine.
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

/// After the old master becomes a replica, and before the sentinels report the new one, commands
/// are refused. They are retried at the new master.
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

pub(crate) fn a_master_without_replicas_or_a_lag_limit_is_reported() {
    with_redis(async {
        let servers = RedisSentinel::start(&Options::new()).await?;
        servers.until_in_sync().await?;
        let client = connect(&servers.url()).await?;
        let level = async |about: &str| {
            let findings = client.examine().await?;
            let found = findings.iter().find(|finding| finding.about == about);
            found.map(|found| found.level).ok_or_else(|| Stop::failed(format!("{findings:?}")))
        };
        let master = servers.master_server().await?;
        master.command(&["CONFIG", "SET", "min-replicas-to-write", "1"]).await?.ok()?;
        assert_eq!(level("failover").await?, Level::Fine);
        assert_eq!(level("replication").await?, Level::Fine);
        master.command(&["CONFIG", "SET", "min-replicas-max-lag", "0"]).await?.ok()?;
        assert_eq!(level("failover").await?, Level::Warning);
        servers.cut_replicas().await?;
        assert_eq!(level("replication").await?, Level::Warning);
        Ok(())
    });
}
