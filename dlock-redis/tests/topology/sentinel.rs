//! Clients of a master that sentinels report, across failovers.

use std::time::Duration;

use dlock_core::{Guard, GuardState, Locks};
use dlock_testlab::{
    Stop, Verdict,
    redis::{Options, RedisSentinel},
};
use tokio::time::sleep;

use crate::support::{SOON, beside, locks, millis, secs, until_copied, with_redis, within};

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

    /// Takes all locks, and waits until the replicas have them.
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

    /// Tokens rise, also from one master to the next.
    fn note(&mut self) {
        for guard in &self.guards {
            let token = guard.token().get();
            assert!(token > self.last, "{}: {token} after {}", guard.name(), self.last);
            self.last = token;
        }
    }

    /// A failover while a claim waits for the first lock. Then that one gets it, and everything
    /// held is held at the new master too.
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
            assert_eq!(state == GuardState::Held, there, "{name} is {state:?}: {held:?}");
            assert_eq!(state, GuardState::Held, "the replicas knew of {name}: {:?}", guard.check());
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
