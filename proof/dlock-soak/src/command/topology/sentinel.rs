//! A Redis master, its replicas, and its sentinels.

use std::time::Duration;

use async_trait::async_trait;
use dlock_testkit::{Stop, support::now};
use dlock_testlab::redis::{Options, RedisSentinel};
use tokio::time::sleep;

use super::{Effect, Fault, Topology};

/// The longest time until the master has data that the replicas lack.
const LAG: Duration = Duration::from_secs(2);

pub(super) struct Sentinel {
    servers: RedisSentinel,
}

impl Sentinel {
    pub(super) async fn start() -> Result<Self, Stop> {
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
        let options = "dlock.response_timeout=500ms&dlock.retention=1s&dlock.durability=1";
        format!("{}?{options}", self.servers.url())
    }

    fn faults(&self) -> Vec<Fault> {
        let mut faults = Fault::HOLDERS.to_vec();
        faults.extend([Fault::Failover, Fault::LaggingFailover]);
        faults
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
        self.servers.master_server().await?.keys("*").await
    }
}
