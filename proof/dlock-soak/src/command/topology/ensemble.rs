//! Three ZooKeeper servers.

use std::time::Duration;

use async_trait::async_trait;
use dlock_testkit::Stop;
use dlock_testlab::{
    Protocol, Proxy,
    zookeeper::{Ensemble, Options},
};
use tokio::time::sleep;

use super::{Effect, Fault, Network, Topology, many_locks, some};
use crate::Load;

/// The timeout of sessions.
const SESSION: Duration = Duration::from_secs(2);

pub(super) struct ThreeServers {
    servers: Ensemble,
    networks: Vec<Network>,
}

impl ThreeServers {
    pub(super) async fn start() -> Result<Self, Stop> {
        let tick = Duration::from_millis(100);
        let options = Options::new().with_tick(tick).with_sync_limit(SESSION * 2);
        let servers = Ensemble::start(&options).await?;
        let mut networks = Vec::new();
        for address in servers.addresses() {
            let proxy = Proxy::start_for(&address, Protocol::ZooKeeper).await?;
            networks.push(Network::over(proxy));
        }
        Ok(Self { servers, networks })
    }

    fn url_of(hosts: &str) -> String {
        format!("zk://{hosts}?dlock.session_timeout={}ms", SESSION.as_millis())
    }
}

#[async_trait]
impl Topology for ThreeServers {
    fn url(&self) -> String {
        let hosts: Vec<_> = self.networks.iter().map(Network::address).collect();
        Self::url_of(&hosts.join(","))
    }

    fn direct_url(&self) -> String {
        Self::url_of(&self.servers.connect_string())
    }

    fn faults(&self) -> Vec<Fault> {
        use Fault::{FollowerCut, LeaderCut, LeaderKilled, LeaderStopped, PushesLost};
        let mut faults = [&Fault::HOLDERS[..], &Fault::NETWORK[..]].concat();
        faults.extend([PushesLost, LeaderKilled, LeaderStopped, LeaderCut, FollowerCut]);
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
                servers.cut_from_leader(node).await?;
                sleep(some(200, 1500)).await;
                servers.heal(node);
            }
            _ => return Network::inject_one(&self.networks, fault).await,
        }
        servers.until_well().await?;
        Ok(Effect::Proven)
    }

    fn is_swept_by_clients(&self) -> bool {
        // A node belongs to a session, so no client has to sweep.
        false
    }

    async fn left(&self) -> Result<Vec<String>, Stop> {
        self.servers.nodes()[0].nodes_under("/").await
    }

    fn load(&self) -> Load {
        // The core shortens leases to the time that sessions support.
        many_locks(Load::new("soak")).with_leases(&[300, 600, 2500].map(Duration::from_millis))
    }
}
