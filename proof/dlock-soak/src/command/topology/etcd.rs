//! Three etcd servers.

use std::time::Duration;

use async_trait::async_trait;
use dlock_testkit::Stop;
use dlock_testlab::{
    Protocol, Proxy,
    etcd::{Ensemble, Options},
};
use tokio::time::sleep;

use super::{Effect, Fault, Network, Topology, many_locks, some};
use crate::Load;

/// The timeout of sessions, the shortest that dlock allows.
const SESSION: Duration = Duration::from_secs(2);

/// Heartbeats and election timeout, so that a leader that is unreachable for a second is replaced.
const ELECTION: (Duration, Duration) = (Duration::from_millis(100), Duration::from_millis(500));

pub(super) struct ThreeMembers {
    servers: Ensemble,
    networks: Vec<Network>,
}

impl ThreeMembers {
    pub(super) async fn start() -> Result<Self, Stop> {
        let servers =
            Ensemble::start(&Options::new().with_election(ELECTION.0, ELECTION.1)).await?;
        let mut networks = Vec::new();
        for address in servers.addresses() {
            networks.push(Network::over(Proxy::start_for(&address, Protocol::Etcd).await?));
        }
        Ok(Self { servers, networks })
    }

    fn url_of(hosts: &str) -> String {
        format!("etcd://{hosts}?dlock.session_timeout={}s", SESSION.as_secs())
    }
}

#[async_trait]
impl Topology for ThreeMembers {
    fn url(&self) -> String {
        let hosts: Vec<_> = self.networks.iter().map(Network::address).collect();
        Self::url_of(&hosts.join(","))
    }

    fn direct_url(&self) -> String {
        Self::url_of(&self.servers.addresses().join(","))
    }

    fn faults(&self) -> Vec<Fault> {
        use Fault::{FollowerCut, LeaderCut, LeaderKilled, LeaderMoved, LeaderStopped, PushesLost};
        let mut faults = [&Fault::HOLDERS[..], &Fault::NETWORK[..]].concat();
        faults.extend([PushesLost, LeaderKilled, LeaderStopped, LeaderCut, LeaderMoved]);
        faults.push(FollowerCut);
        faults
    }

    async fn inject(&self, fault: Fault) -> Result<Effect, Stop> {
        let servers = &self.servers;
        match fault {
            Fault::LeaderKilled => {
                let leader = &servers.nodes()[servers.leader().await?];
                leader.kill();
                sleep(some(0, 300)).await;
                leader.restart().await?;
            }
            Fault::LeaderStopped => {
                let leader = &servers.nodes()[servers.leader().await?];
                leader.pause()?;
                sleep(some(200, 1500)).await;
                leader.resume()?;
            }
            Fault::LeaderCut => {
                let leader = servers.leader().await?;
                servers.isolate(leader);
                sleep(some(200, 1500)).await;
                servers.heal(leader);
            }
            Fault::FollowerCut => {
                let node = servers.followers().await?[0];
                servers.isolate(node);
                sleep(some(200, 1500)).await;
                servers.heal(node);
            }
            Fault::LeaderMoved => {
                let node = servers.followers().await?[0];
                servers.move_leader(node).await?;
            }
            _ => return Network::inject_one(&self.networks, fault).await,
        }
        servers.until_well().await?;
        Ok(Effect::Proven)
    }

    fn is_swept_by_clients(&self) -> bool {
        // A key has the lease of a session, so no client has to sweep.
        false
    }

    async fn left(&self) -> Result<Vec<String>, Stop> {
        self.servers.nodes()[0].keys_under("").await
    }

    fn load(&self) -> Load {
        // The core shortens leases to the time that sessions support.
        many_locks(Load::new("soak")).with_leases(&[300, 600, 2500].map(Duration::from_millis))
    }
}
