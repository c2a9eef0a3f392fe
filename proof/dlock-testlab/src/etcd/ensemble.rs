//! Three servers that elect a leader, with links between them that can be cut.

use std::time::Duration;

use futures_util::future::{join_all, try_join_all};

use super::{
    EtcdServer, Options, Role,
    config::Part,
    links::{Links, NODES},
    programs::Programs,
    server::ATTEMPTS,
};
use crate::{
    Flow, Proxy, Stop, Verdict,
    wait::{insist, until},
};

/// Three etcd servers. They end when this value is dropped. Nodes are identified by their index.
///
/// They are connected through proxies on the runtime that started them.
#[derive(Debug)]
pub struct Ensemble {
    nodes: Vec<EtcdServer>,
    links: Links,
}

impl Ensemble {
    /// Starts all three, and waits until each of them serves.
    ///
    /// # Errors
    /// [`Stop::missing`] if etcd is not installed.
    pub async fn start(options: &Options) -> Result<Self, Stop> {
        let programs = Programs::find()?;
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
                Ok(_) => {
                    ensemble.nodes[0].add_root().await?;
                    return Ok(ensemble);
                }
                Err(Some(stop)) => return Err(stop),
                Err(None) => {}
            }
        }
        let text = format!("each of {ATTEMPTS} times a free port was taken before etcd had it");
        Err(Stop::failed(text))
    }

    async fn spawn(programs: &Programs, options: &Options) -> Result<Self, Stop> {
        let places: Vec<_> =
            (0..NODES).map(|_| EtcdServer::directory_and_ports()).collect::<Result<_, _>>()?;
        let at = places.iter().map(|(home, ports)| (home.path().to_owned(), ports.peers));
        let links = Links::between_all(&at.collect::<Vec<_>>()).await?;
        let token = rand::random();
        let nodes = places.into_iter().enumerate().map(|(node, (home, ports))| {
            EtcdServer::spawn(programs, home, ports, Part::Node(node, NODES, token), options)
        });
        Ok(Self { nodes: nodes.collect::<Result<_, _>>()?, links })
    }

    /// Returns the nodes, always in the same order. Each can be paused, killed and restarted.
    pub fn nodes(&self) -> &[EtcdServer] {
        &self.nodes
    }

    /// Returns the addresses for clients: `127.0.0.1:port` of each node.
    pub fn addresses(&self) -> Vec<String> {
        self.nodes.iter().map(EtcdServer::address).collect()
    }

    /// Returns the URL for clients: `etcd://127.0.0.1:a,127.0.0.1:b,127.0.0.1:c`, with the user if
    /// there is [one](Options::with_root).
    pub fn url(&self) -> String {
        let user = self.nodes[0].options.user_info();
        format!("etcd://{user}{}", self.addresses().join(","))
    }

    /// Returns the role of each node; `None` for a node that does not answer.
    pub async fn roles(&self) -> Vec<Option<Role>> {
        join_all(self.nodes.iter().map(async |node| node.role().await.ok())).await
    }

    /// Returns the index of the leader. Waits until there is exactly one: a leader that has lost
    /// its followers may take a while to notice.
    ///
    /// # Errors
    /// If there is no leader in time.
    pub async fn leader(&self) -> Result<usize, Stop> {
        until("one node leads", || async {
            match self.in_role(Role::Leader).await[..] {
                [leader] => Ok(leader),
                _ => Err(Stop::failed(format!("{:?}", self.roles().await))),
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
            let roles = self.roles().await;
            let follows = |node: &usize| roles[*node] == Some(Role::Follower);
            let followers: Vec<_> = (0..NODES).filter(follows).collect();
            let leads = roles.contains(&Some(Role::Leader));
            match leads && followers.len() + 1 == running().count() {
                true => Ok(followers),
                false => Err(Stop::failed(format!("{roles:?}"))),
            }
        })
        .await
    }

    async fn in_role(&self, role: Role) -> Vec<usize> {
        let roles = self.roles().await;
        (0..NODES).filter(|node| roles[*node] == Some(role)).collect()
    }

    /// Waits until all three serve.
    ///
    /// # Errors
    /// If one of them does not in time.
    pub async fn until_well(&self) -> Verdict {
        until("all nodes serve", || async {
            let roles = self.roles().await;
            let count = |role| roles.iter().filter(|is| **is == Some(role)).count();
            match (count(Role::Leader), count(Role::Follower)) {
                (1, followers) if followers == NODES - 1 => Ok(()),
                _ => Err(Stop::failed(format!("{roles:?}"))),
            }
        })
        .await
    }

    /// Makes this node the leader, in an orderly way. A leader that does not hand over in time, or
    /// that has lost its office meanwhile, refuses; then the leader is asked again, and its reason is
    /// printed.
    ///
    /// # Errors
    /// If this does not happen in time.
    pub async fn move_leader(&self, to: usize) -> Verdict {
        insist("etcdctl move-leader", || async {
            let id = self.nodes[to].member_id().await?;
            match self.in_role(Role::Leader).await[..] {
                [leader] if leader == to => Ok(()),
                [leader] => self.nodes[leader].etcdctl(&["move-leader", &id]).await.map(|_| ()),
                _ => Err(Stop::failed("there is no single leader")),
            }
        })
        .await
    }

    /// Removes this node from the cluster, and waits until it has ended, which it does by itself.
    ///
    /// # Errors
    /// If another node refuses it, or if the node does not end.
    pub async fn remove(&self, node: usize) -> Verdict {
        let id = self.nodes[node].member_id().await?;
        // It is refused until the members have been connected for 5 s.
        until("the node is removed", || async {
            match self.nodes[(node + 1) % NODES].etcdctl(&["member", "remove", &id]).await {
                // By a request whose answer was lost.
                Err(stop) if stop.clone().into_text().contains("member not found") => Ok(()),
                removed => removed.map(drop),
            }
        })
        .await?;
        self.nodes[node].until_ended().await
    }

    /// Holds back all bytes between these two nodes. Both stay connected to the third one.
    pub fn cut(&self, one: usize, other: usize) {
        self.links.between_those(|a, b| (a, b) == (one, other), Flow::Hold);
    }

    /// Holds back all bytes between this node and both others, whichever leads. The node continues
    /// to serve reads that need no vote. A leader continues to answer renewals of leases until its
    /// election timeout has passed, and the others elect another leader.
    pub fn isolate(&self, node: usize) {
        self.links.between_those(|a, _| a == node, Flow::Hold);
    }

    /// Delays all bytes between this node and both others, whichever leads.
    pub fn slow(&self, node: usize, by: Duration) {
        self.links.between_those(|a, _| a == node, Flow::Delay(by));
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

    /// Returns the number of bytes between nodes that were [delayed](Self::slow).
    pub fn delayed_bytes(&self) -> u64 {
        self.links.sum(Proxy::delayed_bytes)
    }

    /// Kills all nodes that run, and restarts all. Waits until each serves.
    ///
    /// # Errors
    /// If one of them does not.
    pub async fn restart(&self) -> Verdict {
        self.nodes.iter().for_each(EtcdServer::kill);
        try_join_all(self.nodes.iter().map(EtcdServer::restart)).await.map(|_| ())
    }
}
