//! Three servers that elect a leader, with links between them that can be cut.

use futures_util::future::{join_all, try_join_all};

use super::{
    Mode, Options, ZooKeeperServer,
    config::Part,
    links::{Links, NODES},
    programs::Programs,
    server::ATTEMPTS,
};
use crate::{Flow, Proxy, Stop, Verdict, wait::until};

/// Three ZooKeeper servers. They end when this value is dropped. Nodes are identified by their
/// index.
///
/// They are connected through proxies on the runtime that started them.
#[derive(Debug)]
pub struct Ensemble {
    nodes: Vec<ZooKeeperServer>,
    links: Links,
}

impl Ensemble {
    /// Starts all three, and waits until each of them serves.
    ///
    /// # Errors
    /// [`Stop::missing`] if ZooKeeper is not installed.
    pub async fn start(options: &Options) -> Result<Self, Stop> {
        let programs = Programs::find()?.archived().await;
        for _ in 0..ATTEMPTS {
            let ensemble = Self::spawn(&programs, options).await?;
            // The first node that loses a port ends the wait, because the others may be waiting for
            // that node.
            let serve = ensemble.nodes.iter().map(async |node| match node.serves().await {
                Ok(true) => Ok(()),
                Ok(false) => Err(None),
                Err(stop) => Err(Some(stop)),
            });
            match try_join_all(serve).await {
                Ok(_) => return Ok(ensemble),
                Err(Some(stop)) => return Err(stop),
                Err(None) => {}
            }
        }
        let text =
            format!("each of {ATTEMPTS} times a free port was taken before zookeeper had it");
        Err(Stop::failed(text))
    }

    async fn spawn(programs: &Programs, options: &Options) -> Result<Self, Stop> {
        let links = Links::between_all().await?;
        let nodes = (0..NODES).map(|node| {
            let part = Part::Node(node + 1, links.lines(node));
            ZooKeeperServer::spawn(programs, &part, options)
        });
        Ok(Self { nodes: nodes.collect::<Result<_, _>>()?, links })
    }

    /// Returns the nodes, always in the same order. Each can be paused, killed and restarted.
    pub fn nodes(&self) -> &[ZooKeeperServer] {
        &self.nodes
    }

    /// Returns the addresses for clients: `127.0.0.1:port` of each node.
    pub fn addresses(&self) -> Vec<String> {
        self.nodes.iter().map(ZooKeeperServer::address).collect()
    }

    /// Returns the connect string for clients: `127.0.0.1:a,127.0.0.1:b,127.0.0.1:c`.
    pub fn connect_string(&self) -> String {
        self.addresses().join(",")
    }

    /// Returns the mode of each node; `None` for a node that does not answer.
    pub async fn modes(&self) -> Vec<Option<Mode>> {
        join_all(self.nodes.iter().map(async |node| node.mode().await.ok())).await
    }

    /// Returns the index of the leader. Waits until there is exactly one: a leader that has lost
    /// its followers may take a while to notice.
    ///
    /// # Errors
    /// If there is no leader in time.
    pub async fn leader(&self) -> Result<usize, Stop> {
        until("one node leads", || async {
            match self.in_mode(Mode::Leader).await[..] {
                [leader] => Ok(leader),
                _ => Err(Stop::failed(format!("{:?}", self.modes().await))),
            }
        })
        .await
    }

    /// Returns the nodes that follow. Waits until each node that was not killed leads or follows.
    ///
    /// # Errors
    /// If this does not happen in time.
    pub async fn followers(&self) -> Result<Vec<usize>, Stop> {
        let running = || self.nodes.iter().filter(|node| node.pid().is_some());
        until("all nodes serve", || async {
            let modes = self.modes().await;
            let follows = |node: &usize| modes[*node] == Some(Mode::Follower);
            let followers: Vec<_> = (0..NODES).filter(follows).collect();
            let leads = modes.contains(&Some(Mode::Leader));
            match leads && followers.len() + 1 == running().count() {
                true => Ok(followers),
                false => Err(Stop::failed(format!("{modes:?}"))),
            }
        })
        .await
    }

    async fn in_mode(&self, mode: Mode) -> Vec<usize> {
        let modes = self.modes().await;
        (0..NODES).filter(|node| modes[*node] == Some(mode)).collect()
    }

    /// Waits until all three serve.
    ///
    /// # Errors
    /// If one of them does not in time.
    pub async fn until_well(&self) -> Verdict {
        until("all nodes serve", || async {
            let modes = self.modes().await;
            let count = |mode| modes.iter().filter(|is| **is == Some(mode)).count();
            match (count(Mode::Leader), count(Mode::Follower)) {
                (1, followers) if followers == NODES - 1 => Ok(()),
                _ => Err(Stop::failed(format!("{modes:?}"))),
            }
        })
        .await
    }

    /// Holds back all bytes between this follower and its leader. The follower continues to serve
    /// its clients with the data that it has until the [sync limit](Options::with_sync_limit) has
    /// passed. Then it closes their connections, and serves no client until it is
    /// [healed](Self::heal) or another node leads.
    ///
    /// # Errors
    /// If the node does not follow.
    pub async fn cut_from_leader(&self, node: usize) -> Verdict {
        let (leader, followers) = (self.leader().await?, self.followers().await?);
        if !followers.contains(&node) {
            return Err(Stop::failed(format!("node {node} does not follow, {leader} leads")));
        }
        self.links.between_those(|a, b| (a, b) == (node, leader), Flow::Hold);
        Ok(())
    }

    /// Holds back all bytes between this node and both others, whichever leads. A leader continues
    /// to serve reads until the [sync limit](Options::with_sync_limit) has passed, and the others
    /// elect another leader.
    pub fn isolate(&self, node: usize) {
        self.links.between_those(|a, _| a == node, Flow::Hold);
    }

    /// Forwards all bytes between this node and both others again, including those that were held
    /// back. Does not wait until the node serves.
    pub fn heal(&self, node: usize) {
        self.links.between_those(|a, _| a == node, Flow::Pass);
    }

    /// Returns the number of bytes between nodes that had to wait because of a cut, forwarded since
    /// or not.
    pub fn held_bytes(&self) -> u64 {
        self.links.sum(Proxy::held_bytes)
    }

    /// Kills all nodes that run, and restarts all. Waits until each serves.
    ///
    /// # Errors
    /// If one of them does not.
    pub async fn restart(&self) -> Verdict {
        self.nodes.iter().for_each(ZooKeeperServer::kill);
        try_join_all(self.nodes.iter().map(ZooKeeperServer::restart)).await.map(|_| ())
    }
}
