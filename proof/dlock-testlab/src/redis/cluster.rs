//! A Redis cluster: masters that share the slots, each with a replica.

use std::sync::atomic::{AtomicU32, Ordering};

use futures_util::future::{join_all, try_join_all};

use super::{
    Options, RedisServer,
    server::{Part, url},
};
use crate::{
    Stop, Verdict,
    wait::{Refusals, soon, until},
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
        let nodes = (0..2 * MASTERS).map(|_| RedisServer::start_part(Part::Cluster, &options));
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
                let (port, bus) = (other.port().to_string(), other.ports.peers.to_string());
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

    /// Moves a slot with its keys from one master to another, and waits until all nodes know.
    ///
    /// # Errors
    /// If this does not happen in time.
    pub async fn move_slot(&self, slot: u16, from: &RedisServer, to: &RedisServer) -> Verdict {
        self.begin_move(slot, from, to).await?;
        self.end_move(slot, from, to).await
    }

    /// Does the first half of [`Self::move_slot`]: from now on `from` answers `ASK` for keys that
    /// it does not have.
    ///
    /// # Errors
    /// If a node refuses.
    pub async fn begin_move(&self, slot: u16, from: &RedisServer, to: &RedisServer) -> Verdict {
        let slot = slot.to_string();
        for (node, state, peer) in [(to, "IMPORTING", from), (from, "MIGRATING", to)] {
            let id = peer.command(&["CLUSTER", "MYID"]).await?.ok()?.text()?;
            node.command(&["CLUSTER", "SETSLOT", &slot, state, &id]).await?.ok()?;
        }
        Ok(())
    }

    /// Moves the keys of a slot between the two halves of a move. Afterwards `from` answers `ASK`
    /// for these keys too.
    ///
    /// # Errors
    /// If a node refuses.
    pub async fn move_keys(&self, slot: u16, from: &RedisServer, to: &RedisServer) -> Verdict {
        let (slot, port) = (slot.to_string(), to.port().to_string());
        let mut connection = from.connect().await?;
        loop {
            let some = ["CLUSTER", "GETKEYSINSLOT", &slot, "100"];
            let keys = connection.command(&some).await?.ok()?.texts()?;
            if keys.is_empty() {
                return Ok(());
            }
            let mut migrate = vec!["MIGRATE", "127.0.0.1", &port, "", "0", "5000"];
            if let Some(password) = &from.options.password {
                migrate.extend(["AUTH", password]);
            }
            migrate.push("KEYS");
            migrate.extend(keys.iter().map(String::as_str));
            connection.command(&migrate).await?.ok()?;
        }
    }

    /// Does the second half of [`Self::move_slot`]: moves the remaining keys, assigns the slot to
    /// `to`, and waits until all nodes know.
    ///
    /// # Errors
    /// If this does not happen in time.
    pub async fn end_move(&self, slot: u16, from: &RedisServer, to: &RedisServer) -> Verdict {
        self.move_keys(slot, from, to).await?;
        let id = to.command(&["CLUSTER", "MYID"]).await?.ok()?.text()?;
        // The new master gets the slot first. If this stopped halfway, a slot without a master
        // would be lost.
        for node in [to, from] {
            let give = ["CLUSTER", "SETSLOT", &slot.to_string(), "NODE", &id];
            node.command(&give).await?.ok()?;
        }
        until("all nodes know the slot's new master", || async {
            for (_, view) in self.views().await {
                view.agrees(slot, &to.address())?;
            }
            Ok(())
        })
        .await
    }

    /// Returns the view that each answering node has of the cluster.
    async fn views(&self) -> Vec<(&RedisServer, View)> {
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

/// One node's view of a cluster: its answer to `CLUSTER NODES`.
#[derive(Debug)]
struct View {
    nodes: Vec<Node>,
}

#[derive(Debug)]
struct Node {
    id: String,
    address: String,
    flags: Vec<String>,
    master: String,
    epoch: u64,
    slots: Vec<(u16, u16)>,
}

impl View {
    async fn of(node: &RedisServer) -> Result<Self, Stop> {
        let reply = soon(node.command(&["CLUSTER", "NODES"])).await?;
        Self::parse(&reply.ok()?.text()?)
    }

    fn parse(text: &str) -> Result<Self, Stop> {
        Ok(Self { nodes: text.lines().map(Node::parse).collect::<Result<_, _>>()? })
    }

    /// Checks that `count` nodes are known and that no introduction is still in progress.
    fn knows(&self, count: usize) -> Verdict {
        let known = self.nodes.iter().filter(|node| !node.is("handshake")).count();
        match known == count && self.nodes.len() == count {
            true => Ok(()),
            false => Err(Stop::failed(format!("a node knows {known} of {count}"))),
        }
    }

    /// Checks that this master has the slot in this view.
    fn agrees(&self, slot: u16, master: &str) -> Verdict {
        let owner = self.nodes.iter().find(|node| node.has(slot));
        match owner.is_some_and(|node| node.address == master) {
            true => Ok(()),
            false => Err(Stop::failed(format!("slot {slot} is not at {master} but at {owner:?}"))),
        }
    }

    /// Whether the node at this address is a master with slots in this view.
    fn sees_master(&self, address: &str) -> bool {
        let node = self.nodes.iter().find(|node| node.address == address);
        node.is_some_and(|node| node.is("master") && !node.slots.is_empty())
    }

    /// Whether this node is the master of the slot in its own view.
    fn serves(&self, slot: u16) -> bool {
        self.myself().is_some_and(|node| node.is("master") && node.has(slot))
    }

    /// Whether this node is a replica of the master at this address.
    fn follows(&self, master: &str) -> bool {
        let master = self.nodes.iter().find(|node| node.address == master);
        let myself = self.myself().filter(|node| node.is("slave"));
        matches!((master, myself), (Some(master), Some(myself)) if myself.master == master.id)
    }

    fn is_master(&self) -> bool {
        self.myself().is_some_and(|node| node.is("master"))
    }

    /// Returns the epoch of the last election of this node, or of its master.
    fn epoch(&self) -> u64 {
        self.myself().map_or(0, |node| node.epoch)
    }

    fn myself(&self) -> Option<&Node> {
        self.nodes.iter().find(|node| node.is("myself"))
    }
}

impl Node {
    /// Reads `ID IP:PORT@BUS[,HOST] FLAGS MASTER PING PONG EPOCH LINK SLOT...`.
    fn parse(line: &str) -> Result<Self, Stop> {
        let words: Vec<&str> = line.split(' ').collect();
        let [id, address, flags, master, _, _, epoch, _, slots @ ..] = words.as_slice() else {
            return Err(Stop::failed(format!("not a node: {line:?}")));
        };
        // Entries in brackets are slots that are being moved.
        let slots = slots.iter().filter(|slots| !slots.starts_with('['));
        Ok(Self {
            id: (*id).to_owned(),
            address: address.split('@').next().unwrap_or_default().to_owned(),
            flags: flags.split(',').map(str::to_owned).collect(),
            master: (*master).to_owned(),
            epoch: epoch.parse()?,
            slots: slots.map(|slots| range(slots)).collect::<Result<_, _>>()?,
        })
    }

    fn is(&self, flag: &str) -> bool {
        self.flags.iter().any(|one| one == flag)
    }

    fn has(&self, slot: u16) -> bool {
        self.slots.iter().any(|&(first, last)| (first..=last).contains(&slot))
    }
}

fn range(slots: &str) -> Result<(u16, u16), Stop> {
    let (first, last) = slots.split_once('-').unwrap_or((slots, slots));
    Ok((first.parse()?, last.parse()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_shows_the_master_of_a_slot_and_the_replicas() {
        let text = "a 127.0.0.1:1@11 master - 0 5 3 connected 0-9 12 [13->-b]\n\
                    b 127.0.0.1:2@12,host myself,slave a 0 5 3 connected\n";
        let view = View::parse(text).unwrap();
        assert!(view.follows("127.0.0.1:1") && !view.serves(5) && !view.is_master());
        assert!(view.sees_master("127.0.0.1:1") && !view.sees_master("127.0.0.1:2"));
        assert!(view.agrees(12, "127.0.0.1:1").is_ok() && view.agrees(13, "127.0.0.1:1").is_err());
        assert!(view.knows(2).is_ok() && view.knows(3).is_err());
        assert_eq!(view.epoch(), 3);
    }
}
