//! Five Redis masters, of which a majority decides.

use async_trait::async_trait;
use dlock_testkit::Stop;
use dlock_testlab::redis::{Options, RedisMasters};
use tokio::time::sleep;

use super::{Effect, Fault, Topology, some};
use crate::Load;

pub(super) struct Quorum {
    masters: RedisMasters,
}

impl Quorum {
    pub(super) async fn start() -> Result<Self, Stop> {
        Ok(Self { masters: RedisMasters::start(5, &Options::new()).await? })
    }
}

#[async_trait]
impl Topology for Quorum {
    fn url(&self) -> String {
        // A master that restarts without its data must not vote before the leases that it lost have
        // expired.
        let guard = self.load().longest_lease().as_millis();
        let options = "dlock.response_timeout=500ms&dlock.retention=1s";
        format!("{}?{options}&dlock.restart_guard={guard}ms", self.masters.url())
    }

    fn faults(&self) -> Vec<Fault> {
        let mut faults = Fault::HOLDERS.to_vec();
        faults.extend([Fault::MinorityAway, Fault::ServerStopped]);
        faults
    }

    async fn inject(&self, fault: Fault) -> Result<Effect, Stop> {
        let servers = self.masters.servers();
        let first = rand::random_range(0..servers.len());
        let second = (first + rand::random_range(1..servers.len())) % servers.len();
        let two = [&servers[first], &servers[second]];
        match fault {
            Fault::ServerStopped => {
                two[0].pause()?;
                sleep(some(100, 900)).await;
                two[0].resume()?;
                // If the master could not renew a lease, it has lost its vote for that lease for
                // good. The next fault must not add two more such masters.
                sleep(self.load().longest_lease() + some(1000, 1100)).await;
            }
            Fault::MinorityAway => {
                for server in two {
                    server.kill();
                }
                sleep(some(50, 500)).await;
                for server in two {
                    server.restart().await?;
                }
                // The votes of the two masters do not count yet. The next fault must not add two
                // more such masters.
                sleep(self.load().longest_lease() + some(1000, 1100)).await;
            }
            _ => return Ok(Effect::Missed(format!("{fault}: not of a quorum"))),
        }
        Ok(Effect::Proven)
    }

    async fn left(&self) -> Result<Vec<String>, Stop> {
        let mut keys = self.masters.keys("*").await?.concat();
        // The record of a master's uptime remains for later clients.
        keys.retain(|key| !key.contains("}?guard:"));
        Ok(keys)
    }

    fn load(&self) -> Load {
        Load::new("soak").with_tasks(2)
    }
}
