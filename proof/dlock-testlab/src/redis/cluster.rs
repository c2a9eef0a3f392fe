//! A Redis cluster: masters that share the slots, each with a replica.

use std::sync::atomic::{AtomicU32, Ordering};

use futures_util::future::{join_all, try_join_all};

use super::{Options, RedisServer, config::Part, masters::url, view::View};
use crate::{
    Stop, Verdict,
    wait::{Refusals, until},
};

const MASTERS: usize = 3;
const SLOTS: [(u16, u16); MASTERS] = [(0, 5460), (5461, 10922), (10923, 16383)];

/// The number of checks after which a request that had no effect yet is sent again.
const AGAIN: u32 = 100;

/// Three masters with one replica each, created by raw commands. They end when this value is
/// dropped.
///
/// The other nodes consider a node failed if it does not answer for a second.
#[derive(Debug)]
pub struct RedisCluster {
    nodes: Vec<RedisServer>,
}

impl RedisCluster {
    /// Starts all six, and waits until each of them finds the cluster healthy and the replicas are
    /// linked. This takes at least two seconds, because a master refuses requests for that long
    /// after its start.
    ///
    /// # Errors
    /// [`Stop::missing`] if Redis is not installed.
    pub async fn start(options: &Options) -> Result<Self, Stop> {
        let options = options
            .clone()
            .with_config("cluster-node-timeout 1000")
            .with_config("cluster-replica-validity-factor 0")
            .with_config("cluster-allow-replica-migration no");
        let nodes = (0..2 * MASTERS).map(|_| RedisServer::start_as(Part::Cluster, &options));
        let cluster = Self { nodes: try_join_all(nodes).await? };
        cluster.share_slots().await?;
        cluster.until_introduced().await?;
        for (master, replica) in cluster.nodes.iter().zip(&cluster.nodes[MASTERS..]) {
            let id = master.command(&["CLUSTER", "MYID"]).await?.text()?;
            replica.command(&["CLUSTER", "REPLICATE", &id]).await?.ok()?;
        }
        cluster.until_well().await?;
        Ok(cluster)
    }

    /// Assigns the slots.
    async fn share_slots(&self) -> Verdict {
        // Slots are assigned before the first introduction: a node that knows another node refuses.
        for (number, node) in self.nodes.iter().enumerate() {
            let epoch = (number + 1).to_string();
            node.command(&["CLUSTER", "SET-CONFIG-EPOCH", &epoch]).await?.ok()?;
            if let Some((first, last)) = SLOTS.get(number) {
                let (first, last) = (first.to_string(), last.to_string());
                node.command(&["CLUSTER", "ADDSLOTSRANGE", &first, &last]).await?.ok()?;
            }
        }
        Ok(())
    }

    /// Introduces each node to all others. A node forgets an introduction that is not answered within
    /// a second; then all are introduced again.
    async fn until_introduced(&self) -> Verdict {
        let refusals = Refusals::of("CLUSTER MEET");
        let asked = AtomicU32::new(0);
        until("the nodes know each other", || async {
            let views = try_join_all(self.nodes.iter().map(View::of)).await?;
            let known = views.iter().try_for_each(|view| view.knows(self.nodes.len()));
            let Err(stop) = known else {
                return Ok(());
            };
            if asked.fetch_add(1, Ordering::Relaxed).is_multiple_of(AGAIN) {
                if asked.load(Ordering::Relaxed) > AGAIN {
                    refusals.print(stop.clone().into_text());
                }
                self.introduce().await?;
            }
            Err(stop)
        })
        .await
    }

    async fn introduce(&self) -> Verdict {
        for (number, node) in self.nodes.iter().enumerate() {
            for other in &self.nodes[number + 1..] {
                let (port, bus) = (other.port().to_string(), other.bus().to_string());
                let meet = ["CLUSTER", "MEET", "127.0.0.1", &port, &bus];
                node.command(&meet).await?.ok()?;
            }
        }
        Ok(())
    }

    /// Returns all nodes, always in the same order: first the masters of the start, by their slots,
    /// then their replicas in the same order.
    pub fn nodes(&self) -> &[RedisServer] {
        &self.nodes
    }

    /// Returns the URL for clients: `redis+cluster://a,b,c`, with the masters of the start.
    pub fn url(&self) -> String {
        url("redis+cluster", &self.nodes[..MASTERS])
    }

    /// Returns the slot of a key.
    ///
    /// # Errors
    /// If no node answers.
    pub async fn slot_of(&self, key: &str) -> Result<u16, Stop> {
        let node = self.nodes.iter().find(|node| node.pid().is_some());
        let node = node.ok_or_else(|| Stop::failed("all nodes are killed"))?;
        let slot = node.command(&["CLUSTER", "KEYSLOT", key]).await?.ok()?.int()?;
        Ok(u16::try_from(slot)?)
    }

    /// Returns the current master of a slot: of the nodes that answer and claim the slot, the one
    /// that was elected last.
    ///
    /// # Errors
    /// If no node claims it in time.
    pub async fn master_of_slot(&self, slot: u16) -> Result<&RedisServer, Stop> {
        until("the slot is served", || self.newest_master_of(slot)).await
    }

    async fn newest_master_of(&self, slot: u16) -> Result<&RedisServer, Stop> {
        let masters = self.views().await.into_iter().filter(|(_, view)| view.serves(slot));
        let newest = masters.max_by_key(|(_, view)| view.epoch());
        let none = || Stop::failed(format!("nobody serves slot {slot}"));
        newest.map(|(node, _)| node).ok_or_else(none)
    }

    /// Returns the current replica of this master.
    ///
    /// # Errors
    /// If no replica of it answers in time.
    pub async fn replica_of(&self, master: &RedisServer) -> Result<&RedisServer, Stop> {
        until("the master has a replica", || async {
            let mut views = self.views().await.into_iter();
            let replica = views.find(|(_, view)| view.follows(&master.address()));
            replica.map(|(node, _)| node).ok_or_else(|| Stop::failed("it has none"))
        })
        .await
    }

    /// Makes this replica the master of its slots, in cooperation with the current master, and
    /// waits until all nodes know.
    ///
    /// # Errors
    /// If this does not happen in time.
    pub async fn failover(&self, replica: &RedisServer) -> Verdict {
        self.take_over(replica, &["CLUSTER", "FAILOVER"]).await
    }

    /// Does the same without the current master, which may be dead.
    ///
    /// # Errors
    /// If this does not happen in time.
    pub async fn failover_by_force(&self, replica: &RedisServer) -> Verdict {
        self.take_over(replica, &["CLUSTER", "FAILOVER", "FORCE"]).await
    }

    async fn take_over(&self, replica: &RedisServer, command: &[&str]) -> Verdict {
        // A failover may expire, and the server does not report that.
        let refusals = Refusals::of(&command.join(" "));
        let asked = AtomicU32::new(0);
        until("the failover ends", || async {
            let agreed = self.agree_on_master(replica).await;
            if let Err(stop) = &agreed
                && asked.fetch_add(1, Ordering::Relaxed).is_multiple_of(AGAIN)
            {
                if asked.load(Ordering::Relaxed) > AGAIN {
                    refusals.print(stop.clone().into_text());
                }
                let answer = replica.command(command).await?.ok();
                answer.inspect_err(|stop| refusals.print(stop.clone().into_text()))?;
            }
            agreed
        })
        .await
    }

    /// Checks that every node that answers considers this one a master.
    async fn agree_on_master(&self, node: &RedisServer) -> Verdict {
        for (viewer, view) in self.views().await {
            if !view.sees_master(&node.address()) {
                let (viewer, node) = (viewer.address(), node.address());
                return Err(Stop::failed(format!("{viewer} sees no master in {node}")));
            }
        }
        Ok(())
    }

    /// Waits until every node that answers knows another master of the slot than `from`, and
    /// returns that master. `from` itself need not know.
    ///
    /// # Errors
    /// If this does not happen in time.
    pub async fn until_failed_over(
        &self,
        slot: u16,
        from: &RedisServer,
    ) -> Result<&RedisServer, Stop> {
        until("the failover ends", || async {
            let master = self.newest_master_of(slot).await?;
            for (viewer, view) in self.views().await {
                if viewer.port() != from.port() {
                    view.agrees(slot, &master.address())?;
                }
            }
            match master.port() == from.port() {
                true => Err(Stop::failed("no failover")),
                false => Ok(master),
            }
        })
        .await
    }

    /// Waits until every node that was not killed finds the cluster healthy and, if it is a
    /// replica, is linked to its master.
    ///
    /// # Errors
    /// If this does not happen in time.
    pub async fn until_well(&self) -> Verdict {
        let running = || self.nodes.iter().filter(|node| node.pid().is_some());
        until("the cluster is well", || async {
            for view in try_join_all(running().map(View::of)).await? {
                view.knows(self.nodes.len())?;
            }
            try_join_all(running().map(well)).await.map(|_| ())
        })
        .await
    }

    /// Returns the keys on all masters that match, in order.
    ///
    /// # Errors
    /// If a node that was not killed does not answer.
    pub async fn keys(&self, pattern: &str) -> Result<Vec<String>, Stop> {
        let views = self.views().await.into_iter();
        let masters = views.filter(|(_, view)| view.is_master()).map(|(node, _)| node);
        let mut keys = try_join_all(masters.map(|node| node.keys(pattern))).await?.concat();
        keys.sort();
        Ok(keys)
    }

    /// Returns the view that each answering node has of the cluster.
    pub(super) async fn views(&self) -> Vec<(&RedisServer, View)> {
        let views = join_all(self.nodes.iter().map(View::of)).await;
        let seen = self.nodes.iter().zip(views);
        seen.filter_map(|(node, view)| Some((node, view.ok()?))).collect()
    }
}

async fn well(node: &RedisServer) -> Verdict {
    let cluster = node.command(&["CLUSTER", "INFO"]).await?.ok()?.text()?;
    let replication = node.info("replication").await?;
    let linked = replication.contains("role:master\r") && replication.contains("state=online")
        || replication.contains("master_link_status:up");
    match cluster.contains("cluster_state:ok") && linked {
        true => Ok(()),
        false => Err(Stop::failed(format!("{cluster}\n{replication}"))),
    }
}
