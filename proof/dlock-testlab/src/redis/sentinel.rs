//! A master with replicas, and sentinels that perform failovers.

use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::{join_all, try_join_all};

use super::{
    Options, RedisServer, Reply,
    server::{Part, url},
};
use crate::{
    Stop, Verdict,
    wait::{Refusals, soon, until},
};

const MASTER: &str = "mymaster";
const REPLICAS: usize = 2;
const SENTINELS: usize = 3;

/// What a sentinel logs when it gives up a failover, with the reason.
const GIVEN_UP: &str = "-failover-abort";

/// A master with two replicas, and three sentinels of which two must agree. They end when this
/// value is dropped.
///
/// The sentinels consider a master down if it does not answer for 500 ms. They start a failover of
/// their own at the earliest four seconds after the last one.
#[derive(Debug)]
pub struct RedisSentinel {
    servers: Vec<RedisServer>,
    sentinels: Vec<RedisServer>,
}

impl RedisSentinel {
    /// Starts all six, and waits until the replicas are in sync and the sentinels know each other.
    ///
    /// # Errors
    /// [`Stop::missing`] if Redis is not installed.
    pub async fn start(options: &Options) -> Result<Self, Stop> {
        let master = RedisServer::start(options).await?;
        let replica = options.clone().replica_of(&master.address());
        let replicas = try_join_all((0..REPLICAS).map(|_| RedisServer::start(&replica))).await?;
        let servers: Vec<_> = std::iter::once(master).chain(replicas).collect();
        // A sentinel gets the list of replicas from the master, with its first request or much
        // later.
        until("the replicas are in sync", || in_sync(&servers, &servers[0])).await?;

        let watch = watching(servers[0].port(), options);
        let watching = (0..SENTINELS).map(|_| RedisServer::start_part(Part::Sentinel, &watch));
        let sentinels = try_join_all(watching).await?;
        try_join_all(sentinels.iter().map(check_often)).await?;
        until("the sentinels know each other", || async {
            try_join_all(sentinels.iter().map(knows_all)).await.map(|_| ())
        })
        .await?;
        Ok(Self { servers, sentinels })
    }

    /// Returns the addresses of the sentinels.
    pub fn sentinels(&self) -> Vec<String> {
        self.sentinels.iter().map(RedisServer::address).collect()
    }

    /// Returns the sentinels themselves, so that a test can kill and pause them.
    pub fn sentinel_servers(&self) -> &[RedisServer] {
        &self.sentinels
    }

    /// Returns the sentinels' name for the master.
    pub fn master_name(&self) -> &'static str {
        MASTER
    }

    /// Returns the URL for clients: `redis+sentinel://a,b,c/mymaster`. The sentinels require no
    /// password; the one in the URL is that of the servers.
    pub fn url(&self) -> String {
        let user_info = self.servers[0].options.user_info();
        let sentinels = url("redis+sentinel", &self.sentinels);
        format!("{}/{MASTER}", sentinels.replacen("://", &format!("://{user_info}"), 1))
    }

    /// Returns the master and the replicas, always in the same order; the first was master at the
    /// start.
    pub fn servers(&self) -> &[RedisServer] {
        &self.servers
    }

    /// Returns the address of the current master, on which all answering sentinels agree.
    ///
    /// # Errors
    /// If they do not agree in time.
    pub async fn master(&self) -> Result<String, Stop> {
        Ok(self.master_server().await?.address())
    }

    /// Returns the current master, on which all answering sentinels agree.
    ///
    /// # Errors
    /// If they do not agree in time.
    pub async fn master_server(&self) -> Result<&RedisServer, Stop> {
        until("the sentinels agree", || self.named_master()).await
    }

    async fn named_master(&self) -> Result<&RedisServer, Stop> {
        let ask = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER];
        let answers = self.sentinels.iter().map(|one| soon(one.command(&ask)));
        let mut addresses = Vec::new();
        for answer in join_all(answers).await {
            if let Ok(Reply::Array(Some(address))) = answer {
                let parts = address.into_iter().map(Reply::text).collect::<Result<Vec<_>, _>>()?;
                addresses.push(parts.join(":"));
            }
        }
        let first = addresses.first().ok_or_else(|| Stop::failed("no sentinel knows a master"))?;
        if addresses.iter().any(|address| address != first) {
            return Err(Stop::failed(format!("the sentinels disagree: {addresses:?}")));
        }
        let mut servers = self.servers.iter();
        let master = servers.find(|server| server.address() == *first);
        master.ok_or_else(|| Stop::failed(format!("the master is a stranger: {first}")))
    }

    /// Kills the master and returns it.
    ///
    /// # Errors
    /// If the sentinels do not agree on a master in time.
    pub async fn kill_master(&self) -> Result<&RedisServer, Stop> {
        let master = self.master_server().await?;
        master.kill();
        Ok(master)
    }

    /// Pauses the master and returns it.
    ///
    /// # Errors
    /// If the sentinels do not agree on a master in time.
    pub async fn pause_master(&self) -> Result<&RedisServer, Stop> {
        let master = self.master_server().await?;
        master.pause()?;
        Ok(master)
    }

    /// Cuts the links of both replicas to the master. From now on the master refuses its replicas
    /// and serves all other clients. If one of the replicas becomes master, the writes that the old
    /// master acknowledged after this call are lost.
    ///
    /// A sentinel promotes a replica only within about five seconds after the cut. The master
    /// accepts replicas again after a restart.
    ///
    /// # Errors
    /// If the sentinels do not agree on a master in time, or the replicas stay linked.
    pub async fn cut_replicas(&self) -> Verdict {
        let master = self.master_server().await?;
        let refuse = ["ACL", "SETUSER", "default", "-psync", "-sync", "-replconf"];
        master.command(&refuse).await?.ok()?;
        until("the links of the replicas are cut", || async {
            master.command(&["CLIENT", "KILL", "TYPE", "replica"]).await?.ok()?;
            has(&master.info("replication").await?, "connected_slaves:0")
        })
        .await
    }

    /// Returns by how many bytes of changes each replica that answers lags behind the master.
    ///
    /// # Errors
    /// If the master does not answer, or the sentinels do not agree on one.
    pub async fn lags(&self) -> Result<Vec<u64>, Stop> {
        let master = self.master_server().await?;
        let replicas = self.servers.iter().filter(|server| server.port() != master.port());
        let offsets = join_all(replicas.map(|one| soon(one.replication_offset()))).await;
        let all = master.replication_offset().await?;
        Ok(offsets.into_iter().flatten().map(|has| all.saturating_sub(has)).collect())
    }

    /// Makes the sentinels fail over from a healthy master. Returns the address of the new master.
    ///
    /// A sentinel refuses to begin if it knows too little about the replicas. It gives up, and does
    /// not try again, if none of them is good enough or if the chosen one does not become master
    /// within two seconds. Then it is asked again, and its reason is printed.
    ///
    /// # Errors
    /// If this does not happen in time.
    pub async fn failover(&self) -> Result<String, Stop> {
        let before = self.master_server().await?.address();
        let (asked, begun) = (&self.sentinels[0], AtomicBool::new(false));
        let refusals = Refusals::of("SENTINEL FAILOVER");
        until("the failover ends", || async {
            // While the sentinel tries, it answers with the old address or with the new one. If it
            // does neither, it has given up.
            let tries = is_failing_over(asked).await?;
            let master = self.acting_master().await?.address();
            if master != before {
                return Ok(master);
            }
            if !tries {
                if begun.swap(false, Ordering::Relaxed) {
                    refusals.print(asked.daemon.last_of(GIVEN_UP));
                }
                let answer = asked.command(&["SENTINEL", "FAILOVER", MASTER]).await?.ok();
                answer.inspect_err(|stop| refusals.print(stop.clone().into_text()))?;
                begun.store(true, Ordering::Relaxed);
            }
            Err(Stop::failed("no failover"))
        })
        .await
    }

    /// Whether a failover that the sentinels were asked for was given up.
    pub fn gives_up_failovers(&self) -> bool {
        self.sentinels[0].daemon.last_of(GIVEN_UP) != GIVEN_UP
    }

    /// Waits until the address of the master differs from this one, and returns the new address.
    ///
    /// # Errors
    /// If this does not happen in time.
    pub async fn until_failed_over(&self, from: &str) -> Result<String, Stop> {
        until("the failover ends", || async {
            let master = self.acting_master().await?.address();
            if master == from { Err(Stop::failed("no failover")) } else { Ok(master) }
        })
        .await
    }

    /// Waits until this is the address of the master.
    ///
    /// # Errors
    /// If this does not happen in time.
    pub async fn until_master_is(&self, address: &str) -> Verdict {
        until("the master changes", || async {
            let master = self.acting_master().await?.address();
            if master == address { Ok(()) } else { Err(Stop::failed(format!("it is {master}"))) }
        })
        .await
    }

    /// Waits until every server that was not killed follows the master and is in sync with it.
    ///
    /// # Errors
    /// If this does not happen in time.
    pub async fn until_in_sync(&self) -> Verdict {
        until("the replicas are in sync", || async {
            in_sync(&self.servers, self.acting_master().await?).await
        })
        .await
    }

    /// Returns the server that the sentinels consider the master and that reports this role itself.
    async fn acting_master(&self) -> Result<&RedisServer, Stop> {
        let master = self.named_master().await?;
        let info = soon(master.info("replication")).await?;
        has(&info, "role:master")?;
        Ok(master)
    }
}

/// Returns the configuration of a sentinel.
fn watching(port: u16, options: &Options) -> Options {
    let mut sentinel = Options::new()
        .with_config(&format!("sentinel monitor {MASTER} 127.0.0.1 {port} 2"))
        .with_config(&format!("sentinel down-after-milliseconds {MASTER} 500"))
        .with_config(&format!("sentinel failover-timeout {MASTER} 2000"))
        .with_config(&format!("sentinel parallel-syncs {MASTER} 2"));
    if let Some(password) = &options.password {
        sentinel = sentinel.with_config(&format!("sentinel auth-pass {MASTER} {password}"));
    }
    sentinel
}

/// Makes a sentinel check its servers several times a second instead of every few seconds, and
/// distrust its clock after a step for one second instead of thirty. Older servers refuse these
/// settings; then everything takes longer.
async fn check_often(sentinel: &RedisServer) -> Verdict {
    let periods = [("publish-period", "200"), ("info-period", "200"), ("tilt-period", "1000")];
    for (period, millis) in periods {
        sentinel.command(&["SENTINEL", "DEBUG", period, millis]).await?;
    }
    Ok(())
}

/// Whether this sentinel tries to make a replica the master.
async fn is_failing_over(sentinel: &RedisServer) -> Result<bool, Stop> {
    let known = sentinel.command(&["SENTINEL", "MASTER", MASTER]).await?.ok()?.list()?;
    let known = known.into_iter().map(Reply::text).collect::<Result<Vec<_>, _>>()?;
    let flags = known.iter().position(|field| field == "flags").and_then(|at| known.get(at + 1));
    Ok(flags.is_some_and(|flags| flags.contains("failover_in_progress")))
}

async fn knows_all(sentinel: &RedisServer) -> Verdict {
    for (what, others) in [("REPLICAS", REPLICAS), ("SENTINELS", SENTINELS - 1)] {
        let known = sentinel.command(&["SENTINEL", what, MASTER]).await?.ok()?.list()?;
        if known.len() != others {
            return Err(Stop::failed(format!("{} {what} are known", known.len())));
        }
    }
    Ok(())
}

async fn in_sync(servers: &[RedisServer], master: &RedisServer) -> Verdict {
    let running = || servers.iter().filter(|server| server.pid().is_some());
    let replicas = running().filter(|server| server.port() != master.port());
    for replica in replicas.clone() {
        let info = replica.info("replication").await?;
        has(&info, &format!("master_port:{}", master.port()))?;
        has(&info, "master_link_status:up")?;
    }
    let online = master.info("replication").await?.matches("state=online").count();
    match online == replicas.count() {
        true => Ok(()),
        false => Err(Stop::failed(format!("{online} replicas are online"))),
    }
}

fn has(info: &str, line: &str) -> Verdict {
    match info.lines().any(|one| one == line) {
        true => Ok(()),
        false => Err(Stop::failed(format!("not {line}"))),
    }
}
