//! An ensemble of etcd servers, with links between them that can be cut.
//!
//! All nodes know a node by the same address, so the address can't lead each of them through a
//! proxy of its own. But it is the path of a Unix socket, relative to the directory of the node that
//! connects: `unix://localhost:2` is the file `localhost:2` in that directory. So each node has a
//! directory of sockets to the others, and each socket leads through a proxy of its own to the port
//! that the other node listens on. Raft, snapshots and renewals of leases all take this way.

use std::time::Duration;

use tokio::{
    io::copy_bidirectional,
    net::{TcpStream, UnixListener},
    task::JoinSet,
    time::sleep,
};

use super::{
    EtcdServer, Options, Role,
    server::{KIND, Part, directory, socket},
};
use crate::{
    Flow, Member, Proxy, Stop, Verdict,
    directory::Directory,
    ensemble::{Link, Links, NODES, in_role},
    machine::Reserved,
    server::Ports,
    wait::{insist, until},
};

/// The pause after an error that would come again at once, such as too many open files.
const POLL: Duration = Duration::from_millis(5);

/// Three etcd servers.
pub type Ensemble = crate::Ensemble<Options>;

impl Member for Options {
    type Role = Role;
    const LEADER: Role = Role::Leader;
    const FOLLOWER: Role = Role::Follower;

    async fn role(node: &EtcdServer) -> Result<Role, Stop> {
        node.role().await
    }
}

impl Ensemble {
    /// Starts all three, and waits until each of them serves.
    ///
    /// # Errors
    /// [`Stop::missing`] if etcd is not installed.
    pub async fn start(options: &Options) -> Result<Self, Stop> {
        let ensemble = Self::start_as(|| Self::spawn(options)).await?;
        ensemble.nodes[0].add_root().await?;
        Ok(ensemble)
    }

    async fn spawn(options: &Options) -> Result<Self, Stop> {
        let nodes = (0..NODES).map(|_| Ok((directory()?, Ports::free()?)));
        let nodes: Vec<(Directory, (Ports, Reserved))> = nodes.collect::<Result<_, Stop>>()?;
        let links = link_all(&nodes).await?;
        let token = rand::random();
        let nodes = nodes.into_iter().enumerate().map(|(node, (directory, reserved))| {
            let options = options.clone().with_part(Part::Node(node, NODES, token));
            EtcdServer::spawn(&KIND, directory, reserved, &options)
        });
        Ok(Self { nodes: nodes.collect::<Result<_, _>>()?, links })
    }

    /// Returns the URL for clients: `etcd://127.0.0.1:a,127.0.0.1:b,127.0.0.1:c`, with the user if
    /// there is [one](Options::with_root).
    pub fn url(&self) -> String {
        let user = self.nodes[0].options.user_info();
        format!("etcd://{user}{}", self.addresses().join(","))
    }

    /// Makes this node the leader, in an orderly way. A leader that does not transfer the
    /// leadership in time, or that has lost its office meanwhile, refuses; then the leader is asked
    /// again, and its reason is printed.
    ///
    /// # Errors
    /// If this does not happen in time.
    pub async fn move_leader(&self, to: usize) -> Verdict {
        insist("etcdctl move-leader", || async {
            let id = self.nodes[to].member_id().await?;
            match in_role(&self.roles().await, Role::Leader)[..] {
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

    /// Delays all bytes between this node and both others, whichever leads.
    pub fn slow(&self, node: usize, by: Duration) {
        self.links.between_those(|a, _| a == node, Flow::Delay(by));
    }
}

/// Links all nodes, with these directories and ports for peers.
async fn link_all(nodes: &[(Directory, (Ports, Reserved))]) -> Result<Links, Stop> {
    let mut links = Links::default();
    for (from, (directory, _)) in nodes.iter().enumerate() {
        for (to, (_, (ports, _))) in nodes.iter().enumerate().filter(|(to, _)| *to != from) {
            let listener = UnixListener::bind(directory.path().join(socket(to)))?;
            // It carries the messages of both, since a node connects to another one also to receive.
            let proxy = Proxy::start(&format!("127.0.0.1:{}", ports.peers)).await?;
            links.hops.spawn(hop(listener, proxy.address()));
            links.links.push(Link { from, to, proxies: vec![proxy] });
        }
    }
    Ok(links)
}

/// Forwards connections to the proxy until it is dropped.
async fn hop(listener: UnixListener, proxy: String) {
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        match listener.accept().await {
            Ok((mut caller, _)) => {
                let proxy = proxy.clone();
                connections.spawn(async move {
                    let mut node = TcpStream::connect(proxy).await?;
                    node.set_nodelay(true)?;
                    copy_bidirectional(&mut caller, &mut node).await
                });
            }
            Err(_) => sleep(POLL).await,
        }
    }
}
