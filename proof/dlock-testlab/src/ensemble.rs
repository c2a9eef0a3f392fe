//! Three servers that elect a leader, with links between them that can be cut.

use std::fmt::Debug;

use futures_util::future::{join_all, try_join_all};
use tokio::task::JoinSet;

use super::{
    server::{ATTEMPTS, Server},
    wait::until,
};
use crate::{Flow, Proxy, Stop, Verdict};

/// The number of nodes in an ensemble.
pub(super) const NODES: usize = 3;

/// Three servers that elect a leader. They end when this value is dropped. Nodes are identified by
/// their index.
///
/// They are connected through proxies on the runtime that started them.
#[derive(Debug)]
pub struct Ensemble<O: 'static> {
    pub(super) nodes: Vec<Server<O>>,
    pub(super) links: Links,
}

/// The options of a server that can be a node of an ensemble.
pub trait Member: Sized + Send + Sync + 'static {
    /// The role of a node, as it sees itself.
    type Role: Copy + Debug + PartialEq + Send + Sync;
    /// The role of a node that leads.
    const LEADER: Self::Role;
    /// The role of a node that follows.
    const FOLLOWER: Self::Role;

    /// Returns the role of a node.
    ///
    /// # Errors
    /// If no answer arrives.
    fn role(node: &Server<Self>) -> impl Future<Output = Result<Self::Role, Stop>> + Send;
}

/// The links between the nodes, through proxies on the runtime that created them.
#[derive(Debug, Default)]
pub(super) struct Links {
    pub(super) links: Vec<Link>,
    /// The tasks that connect the proxies with the nodes. They end when this is dropped.
    pub(super) hops: JoinSet<()>,
}

/// The link from a node to another one.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) proxies: Vec<Proxy>,
}

impl Links {
    /// Returns the sum of this counter over all links.
    fn sum(&self, count: impl Fn(&Proxy) -> u64) -> u64 {
        self.links.iter().flat_map(|link| &link.proxies).map(count).sum()
    }

    /// Sets what happens to all bytes between the pairs of nodes for which `which` is true, in both
    /// directions.
    pub(super) fn between_those(&self, which: impl Fn(usize, usize) -> bool, flow: Flow) {
        for link in &self.links {
            if which(link.from, link.to) || which(link.to, link.from) {
                for proxy in &link.proxies {
                    proxy.requests(flow);
                    proxy.replies(flow);
                }
            }
        }
    }
}

impl<O: Member> Ensemble<O> {
    /// Starts all three with `spawn`, and waits until each of them serves.
    pub(super) async fn start_as<F>(spawn: impl Fn() -> F) -> Result<Self, Stop>
    where
        F: Future<Output = Result<Self, Stop>>,
    {
        for _ in 0..ATTEMPTS {
            let ensemble = spawn().await?;
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
        Err(Stop::failed(format!("each of {ATTEMPTS} times a free port of a node was taken")))
    }

    /// Returns the nodes, always in the same order. Each can be paused, killed and restarted.
    pub fn nodes(&self) -> &[Server<O>] {
        &self.nodes
    }

    /// Returns the addresses for clients: `127.0.0.1:port` of each node.
    pub fn addresses(&self) -> Vec<String> {
        self.nodes.iter().map(Server::address).collect()
    }

    /// Returns the role of each node; `None` for a node that does not answer.
    pub async fn roles(&self) -> Vec<Option<O::Role>> {
        join_all(self.nodes.iter().map(async |node| O::role(node).await.ok())).await
    }

    /// Returns the index of the leader. Waits until there is exactly one: a leader that has lost
    /// its followers may take a while to notice.
    ///
    /// # Errors
    /// If there is no leader in time.
    pub async fn leader(&self) -> Result<usize, Stop> {
        until("one node leads", || async {
            let roles = self.roles().await;
            match in_role(&roles, O::LEADER)[..] {
                [leader] => Ok(leader),
                _ => Err(Stop::failed(format!("{roles:?}"))),
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
        until("all nodes serve", || self.followers_of(running().count())).await
    }

    /// Waits until all three serve.
    ///
    /// # Errors
    /// If one of them does not in time.
    pub async fn until_well(&self) -> Verdict {
        until("all nodes serve", || self.followers_of(NODES)).await.map(|_| ())
    }

    /// Returns the followers, if one node leads and so many serve.
    async fn followers_of(&self, serving: usize) -> Result<Vec<usize>, Stop> {
        let roles = self.roles().await;
        let followers = in_role(&roles, O::FOLLOWER);
        match in_role(&roles, O::LEADER).len() == 1 && followers.len() + 1 == serving {
            true => Ok(followers),
            false => Err(Stop::failed(format!("{roles:?}"))),
        }
    }

    /// Holds back all bytes between this node and both others, whichever leads. The node continues
    /// to serve reads that need no vote; a leader does so until its own timeout has passed, and the
    /// others elect another leader.
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

    /// Returns the number of bytes between nodes that were delayed.
    pub fn delayed_bytes(&self) -> u64 {
        self.links.sum(Proxy::delayed_bytes)
    }

    /// Kills all nodes that run, and restarts all. Waits until each serves.
    ///
    /// # Errors
    /// If one of them does not.
    pub async fn restart(&self) -> Verdict {
        self.nodes.iter().for_each(Server::kill);
        try_join_all(self.nodes.iter().map(Server::restart)).await.map(|_| ())
    }
}

/// Returns the nodes that have this role.
pub(super) fn in_role<R: Copy + PartialEq>(roles: &[Option<R>], role: R) -> Vec<usize> {
    (0..roles.len()).filter(|node| roles[*node] == Some(role)).collect()
}
