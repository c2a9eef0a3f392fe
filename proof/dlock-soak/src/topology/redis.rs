//! Several Redis servers: a master with replicas and sentinels, a cluster, a quorum of masters.

use std::time::Duration;

use async_trait::async_trait;
use dlock_testkit::{Stop, support::now};
use dlock_testlab::redis::{Options, RedisCluster, RedisMasters, RedisSentinel, RedisServer};
use tokio::time::sleep;

use super::{Effect, Fault, Topology, is_stopped, some};
use crate::plan::Load;

/// The longest time until the master has data that the replicas lack.
const LAG: Duration = Duration::from_secs(2);

/// Options that fit short leases and a check of the records that remain.
pub(super) const OPTIONS: &str = "dlock.response_timeout=500ms";

/// Removes the keys that a server keeps: the tokens of the buckets; and for later clients, the restart
/// guard records how long it has run.
pub(super) fn without_guard(mut keys: Vec<String>) -> Vec<String> {
    keys.retain(|key| !key.contains("}?guard:") && !key.ends_with("}t"));
    keys
}

/// A master, its replicas, and its sentinels.
#[derive(Debug)]
pub(crate) struct Sentinel {
    servers: RedisSentinel,
}

impl Sentinel {
    pub(crate) async fn start() -> Result<Self, Stop> {
        let servers = RedisSentinel::start(&Options::new()).await?;
        // If several sentinels find the master down at the same time, they may fail over twice in a
        // row. The second time, they may choose a replica of the first master, which has no data of
        // the second.
        for follower in &servers.sentinel_servers()[1..] {
            let never = ["SENTINEL", "SET", servers.master_name(), "quorum", "4"];
            follower.command(&never).await?.ok()?;
        }
        Ok(Self { servers })
    }

    /// Cuts off the replicas, so that the new master will lack all grants from now on.
    async fn fall_behind(&self) -> Result<Effect, Stop> {
        self.servers.cut_replicas().await?;
        let end = now().saturating_add(LAG);
        loop {
            sleep(Duration::from_millis(50)).await;
            let lags = self.servers.lags().await?;
            if !lags.is_empty() && lags.iter().all(|&lag| lag > 0) {
                return Ok(Effect::Proven);
            }
            if now() >= end {
                return Ok(Effect::Missed(format!("the replicas lag by {lags:?} bytes")));
            }
        }
    }

    /// Kills the master, waits for a failover, and restarts the old master. Reports whether a
    /// replica took over: a replica that was cut off for long is not eligible, and a slow machine
    /// delays everything.
    async fn fail_over(&self) -> Result<Effect, Stop> {
        let killed = self.servers.kill_master().await?;
        let over = self.servers.until_failed_over(&killed.address()).await;
        if over.is_ok() {
            // If the old master restarted before the other replica has left it, that replica would
            // still acknowledge its writes.
            self.servers.until_in_sync().await?;
        }
        killed.restart().await?;
        self.servers.until_in_sync().await?;
        Ok(over.map_or_else(|stop| Effect::Missed(stop.into_text()), |_| Effect::Proven))
    }
}

#[async_trait]
impl Topology for Sentinel {
    fn url(&self) -> String {
        format!("{}?{OPTIONS}&dlock.durability=1", self.servers.url())
    }

    async fn inject(&self, fault: Fault) -> Result<Effect, Stop> {
        match fault {
            Fault::Failover => self.fail_over().await,
            Fault::LaggingFailover => {
                let fell_behind = self.fall_behind().await?;
                let failed_over = self.fail_over().await?;
                Ok(if fell_behind == Effect::Proven { failed_over } else { fell_behind })
            }
            _ => Ok(Effect::Missed(format!("{fault}: not of Sentinel"))),
        }
    }

    async fn left(&self) -> Result<Vec<String>, Stop> {
        Ok(without_guard(self.servers.master_server().await?.keys("*").await?))
    }
}

/// Three masters with a replica each.
#[derive(Debug)]
pub(crate) struct Cluster {
    servers: RedisCluster,
    /// Whether each grant waits for a replica. Only a replica that takes over needs that.
    is_durable: bool,
}

impl Cluster {
    pub(crate) async fn start(faults: &[Fault]) -> Result<Self, Stop> {
        let servers = RedisCluster::start(&Options::new()).await?;
        Ok(Self { servers, is_durable: faults != [Fault::SlotMoved] })
    }

    /// Returns the slot of a lock that is in use.
    async fn some_slot(&self) -> Result<u16, Stop> {
        loop {
            let keys = self.servers.keys("dlock:{*").await?;
            if !keys.is_empty() {
                return self.servers.slot_of(&keys[rand::random_range(0..keys.len())]).await;
            }
            sleep(Duration::from_millis(5)).await;
        }
    }

    async fn is_master(&self, slot: u16, server: &RedisServer) -> Result<Effect, Stop> {
        let serves = self.servers.master_of_slot(slot).await?.port() == server.port();
        Ok(Effect::seen(serves, "another server serves the slot"))
    }
}

#[async_trait]
impl Topology for Cluster {
    fn url(&self) -> String {
        let durability = if self.is_durable { "&dlock.durability=1" } else { "" };
        format!("{}?{OPTIONS}{durability}", self.servers.url())
    }

    async fn inject(&self, fault: Fault) -> Result<Effect, Stop> {
        let (servers, slot) = (&self.servers, self.some_slot().await?);
        let from = servers.master_of_slot(slot).await?;
        match fault {
            Fault::Takeover => {
                let replica = servers.replica_of(from).await?;
                servers.failover_by_force(replica).await?;
                servers.until_well().await?;
                self.is_master(slot, replica).await
            }
            Fault::SlotMoved => {
                let mut masters = Vec::new();
                // Each of these has a third of the slots.
                for slot in [0, 8_000, 16_000] {
                    masters.push(servers.master_of_slot(slot).await?);
                }
                masters.retain(|master| master.port() != from.port());
                let to = masters[rand::random_range(0..masters.len())];
                servers.begin_move(slot, from, to).await?;
                sleep(some(0, 40)).await;
                servers.move_keys(slot, from, to).await?;
                sleep(some(0, 40)).await;
                servers.end_move(slot, from, to).await?;
                self.is_master(slot, to).await
            }
            _ => Ok(Effect::Missed(format!("{fault}: not of a cluster"))),
        }
    }

    async fn left(&self) -> Result<Vec<String>, Stop> {
        Ok(without_guard(self.servers.keys("*").await?))
    }
}

/// Five masters, of which a majority decides.
#[derive(Debug)]
pub(crate) struct Quorum {
    masters: RedisMasters,
}

impl Quorum {
    pub(crate) async fn start() -> Result<Self, Stop> {
        Ok(Self { masters: RedisMasters::start(5, &Options::new()).await? })
    }
}

#[async_trait]
impl Topology for Quorum {
    fn url(&self) -> String {
        // A master that restarts without its data must not vote before the leases that it lost have
        // expired.
        let guard = self.load().longest_lease().as_millis();
        format!("{}?{OPTIONS}&dlock.restart_guard={guard}ms", self.masters.url())
    }

    async fn inject(&self, fault: Fault) -> Result<Effect, Stop> {
        let servers = self.masters.servers();
        let first = rand::random_range(0..servers.len());
        let second = (first + rand::random_range(1..servers.len())) % servers.len();
        let (away, time) = match fault {
            Fault::ServerStopped => (&[first][..], some(100, 900)),
            Fault::MinorityAway => (&[first, second][..], some(50, 800)),
            _ => return Ok(Effect::Missed(format!("{fault}: not of a quorum"))),
        };
        let away: Vec<_> = away.iter().map(|at| &servers[*at]).collect();
        for server in &away {
            if fault == Fault::ServerStopped || rand::random() {
                server.pause()?;
            } else {
                server.kill();
            }
        }
        sleep(time).await;
        let were_away =
            away.iter().all(|server| server.pid().is_none() || is_stopped(server.pid()));
        for server in &away {
            match server.pid() {
                Some(_) => server.resume()?,
                None => server.restart().await?,
            }
        }
        // The votes of a master without its data do not count yet, and one that could not renew a
        // lease has lost its vote for that lease for good. The next fault must not add two more
        // such masters.
        sleep(self.load().longest_lease() + some(1000, 1100)).await;
        Ok(Effect::seen(were_away, "a server was not away"))
    }

    async fn left(&self) -> Result<Vec<String>, Stop> {
        Ok(without_guard(self.masters.keys("*").await?.concat()))
    }

    fn load(&self) -> Load {
        Load::new("soak").with_tasks(2)
    }
}
