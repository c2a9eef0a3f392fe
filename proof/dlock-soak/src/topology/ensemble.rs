//! Three servers of ZooKeeper or etcd that replace each other.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use async_trait::async_trait;
use dlock_testkit::{Stop, Verdict};
use dlock_testlab::{Protocol, Proxy, etcd, zookeeper};
use tokio::time::sleep;

use super::{
    Effect, Fault, Outages, Topology, is_restarted, is_stopped, network::Network, some,
    with_sessions,
};
use crate::plan::Load;

/// The timeout of sessions, the shortest that dlock allows for etcd.
pub(super) const SESSION: Duration = Duration::from_secs(2);

/// The longest outage, after which sessions have ended.
pub(super) const LONGEST: Duration = Duration::from_secs(4);

/// Heartbeats and election timeout of etcd, so that a leader that is unreachable for a second is
/// replaced.
const ELECTION: (Duration, Duration) = (Duration::from_millis(100), Duration::from_millis(500));

/// How long the leader of ZooKeeper tolerates followers that do not answer: so short that it is
/// replaced soon, or so long that a follower serves its clients after their sessions have ended.
const SYNC_LIMITS: [Duration; 2] = [Duration::from_millis(800), LONGEST];

#[derive(Debug)]
pub(crate) struct Three {
    servers: Servers,
    networks: Vec<Network>,
    outages: Outages,
    /// The revision of the last compaction.
    compacted: AtomicU64,
}

#[derive(Debug)]
enum Servers {
    ZooKeeper(zookeeper::Ensemble),
    Etcd(etcd::Ensemble),
}

/// Calls the same method of either kind.
macro_rules! each {
    ($of:expr, $servers:ident => $call:expr) => {
        match $of {
            Servers::ZooKeeper($servers) => $call,
            Servers::Etcd($servers) => $call,
        }
    };
}

/// Returns options of servers whose sessions end soon after they should.
pub(super) fn zookeeper_options(faults: &[Fault]) -> zookeeper::Options {
    let cuts = faults.contains(&Fault::FollowerCut);
    let is_long = faults == [Fault::FollowerCut] || cuts && rand::random();
    let limit = SYNC_LIMITS[usize::from(is_long)];
    zookeeper::Options::new().with_tick(Duration::from_millis(100)).with_sync_limit(limit)
}

pub(super) fn etcd_options() -> etcd::Options {
    etcd::Options::new().with_election(ELECTION.0, ELECTION.1)
}

/// Returns the URL of a store with short sessions.
pub(super) fn url(scheme: &str, hosts: &str) -> String {
    format!("{scheme}://{hosts}?dlock.session_timeout={}s", SESSION.as_secs())
}

impl Three {
    pub(crate) async fn zookeeper(faults: &[Fault]) -> Result<Self, Stop> {
        let servers = zookeeper::Ensemble::start(&zookeeper_options(faults)).await?;
        Self::of(Servers::ZooKeeper(servers), Protocol::ZooKeeper).await
    }

    pub(crate) async fn etcd() -> Result<Self, Stop> {
        let servers = etcd::Ensemble::start(&etcd_options()).await?;
        Self::of(Servers::Etcd(servers), Protocol::Etcd).await
    }

    async fn of(servers: Servers, protocol: Protocol) -> Result<Self, Stop> {
        let mut networks = Vec::new();
        for address in servers.addresses() {
            networks.push(Network::over(Proxy::start_for(&address, protocol).await?));
        }
        // A new cluster has revision 1.
        let (outages, compacted) = (Outages::up_to(LONGEST), AtomicU64::new(1));
        Ok(Self { servers, networks, outages, compacted })
    }

    /// Kills, stops or isolates a server, and repairs it, while others may still recover. Does not
    /// wait until all serve.
    async fn member_away(&self) -> Result<Effect, Stop> {
        let (servers, node) = (&self.servers, rand::random_range(0..self.networks.len()));
        match rand::random_range(0..3) {
            0 => servers.kill(node).await,
            1 => servers.stop(node, self.outages.next()).await,
            _ => servers.cut(node, Fault::MemberAway, self.outages.next()).await,
        }
    }
}

impl Servers {
    fn scheme(&self) -> &'static str {
        match self {
            Self::ZooKeeper(_) => "zk",
            Self::Etcd(_) => "etcd",
        }
    }

    fn addresses(&self) -> Vec<String> {
        each!(self, servers => servers.addresses())
    }

    async fn leader(&self) -> Result<usize, Stop> {
        each!(self, servers => servers.leader().await)
    }

    async fn some_follower(&self) -> Result<usize, Stop> {
        let followers = each!(self, servers => servers.followers().await?);
        Ok(followers[rand::random_range(0..followers.len())])
    }

    fn pid(&self, node: usize) -> Option<u32> {
        each!(self, servers => servers.nodes()[node].pid())
    }

    /// Kills a server, and starts it again a moment later.
    async fn kill(&self, node: usize) -> Result<Effect, Stop> {
        let before = self.pid(node);
        each!(self, servers => {
            servers.nodes()[node].kill();
            sleep(some(0, 600)).await;
            servers.nodes()[node].restart().await?;
        });
        Ok(Effect::seen(is_restarted(before, self.pid(node)), "the server was not killed"))
    }

    async fn stop(&self, node: usize, time: Duration) -> Result<Effect, Stop> {
        each!(self, servers => servers.nodes()[node].pause()?);
        sleep(time).await;
        let stopped = is_stopped(self.pid(node));
        each!(self, servers => servers.nodes()[node].resume()?);
        Ok(Effect::seen(stopped, "the server was not stopped"))
    }

    /// Cuts a server off from both others, or a follower of ZooKeeper from its leader.
    async fn cut(&self, node: usize, fault: Fault, time: Duration) -> Result<Effect, Stop> {
        let before = self.held_bytes();
        match self {
            Self::ZooKeeper(servers) if fault == Fault::FollowerCut => {
                servers.cut_from_leader(node).await?;
            }
            _ => each!(self, servers => servers.isolate(node)),
        }
        sleep(time).await;
        let held = self.held_bytes() > before;
        each!(self, servers => servers.heal(node));
        Ok(Effect::seen(held, "the servers sent each other nothing"))
    }

    fn held_bytes(&self) -> u64 {
        each!(self, servers => servers.held_bytes())
    }

    async fn until_well(&self) -> Verdict {
        each!(self, servers => servers.until_well().await)
    }
}

/// Injects a fault that only etcd has. `compacted` is the revision of the last compaction.
async fn inject_into_etcd(
    servers: &etcd::Ensemble,
    fault: Fault,
    compacted: &AtomicU64,
) -> Result<Effect, Stop> {
    match fault {
        Fault::LeaderMoved => {
            let (followers, before) = (servers.followers().await?, servers.leader().await?);
            servers.move_leader(followers[rand::random_range(0..followers.len())]).await?;
            Ok(Effect::seen(servers.leader().await? != before, "the leader did not change"))
        }
        Fault::MemberSlow => {
            let (node, before) =
                (rand::random_range(0..servers.nodes().len()), servers.delayed_bytes());
            servers.slow(node, some(5, 30));
            sleep(some(100, 1000)).await;
            let delayed = servers.delayed_bytes() > before;
            servers.heal(node);
            Ok(Effect::seen(delayed, "the servers sent each other nothing"))
        }
        _ => {
            let revision = servers.nodes()[0].compact().await?;
            let before = compacted.swap(revision, Ordering::Relaxed);
            Ok(Effect::seen(revision > before, "there was no old revision"))
        }
    }
}

#[async_trait]
impl Topology for Three {
    fn url(&self) -> String {
        let hosts: Vec<_> = self.networks.iter().map(Network::address).collect();
        url(self.servers.scheme(), &hosts.join(","))
    }

    fn direct_url(&self) -> String {
        url(self.servers.scheme(), &self.servers.addresses().join(","))
    }

    async fn inject(&self, fault: Fault) -> Result<Effect, Stop> {
        use Fault::{
            FollowerCut, HistoryCompacted, LeaderCut, LeaderKilled, LeaderMoved, LeaderStopped,
            MemberAway, MemberSlow,
        };
        let (servers, outages) = (&self.servers, &self.outages);
        // After `MemberAway`, the leader may change at any moment.
        let missed = |stop: Stop| Effect::Missed(stop.into_text());
        let effect = match (fault, servers) {
            (LeaderKilled, _) => servers.kill(servers.leader().await?).await?,
            (LeaderStopped, _) => servers.stop(servers.leader().await?, outages.next()).await?,
            (LeaderCut, _) => servers.cut(servers.leader().await?, fault, outages.next()).await?,
            (FollowerCut, _) => {
                let node = servers.some_follower().await?;
                servers.cut(node, fault, outages.next()).await.unwrap_or_else(missed)
            }
            (MemberAway, _) => return self.member_away().await,
            (LeaderMoved | MemberSlow | HistoryCompacted, Servers::Etcd(servers)) => {
                inject_into_etcd(servers, fault, &self.compacted).await.unwrap_or_else(missed)
            }
            _ => return Network::inject_one(&self.networks, fault, outages).await,
        };
        servers.until_well().await?;
        Ok(effect)
    }

    async fn until_well(&self) -> Verdict {
        self.servers.until_well().await
    }

    fn is_swept_by_clients(&self) -> bool {
        // A claim belongs to a session, so no client has to sweep.
        false
    }

    async fn left(&self) -> Result<Vec<String>, Stop> {
        match &self.servers {
            Servers::ZooKeeper(servers) => servers.nodes()[0].nodes_under("/").await,
            Servers::Etcd(servers) => servers.nodes()[0].keys_under("").await,
        }
    }

    fn load(&self) -> Load {
        with_sessions()
    }
}
