//! The links between the nodes of an ensemble.
//!
//! All nodes know a node by the same address, so the address can't lead each of them through a
//! proxy of its own. But it is the path of a Unix socket, relative to the directory of the node that
//! connects: `unix://localhost:2` is the file `localhost:2` in that directory. So each node has a
//! directory of sockets to the others, and each socket leads through a proxy of its own to the port
//! that the other node listens on. Raft, snapshots and renewals of leases all take this way.

use std::path::PathBuf;

use tokio::{
    io::copy_bidirectional,
    net::{TcpStream, UnixListener},
    task::JoinSet,
    time::sleep,
};

use crate::{Flow, Proxy, Stop};

/// The number of nodes in an ensemble.
pub(super) const NODES: usize = 3;

/// The pause after an error that would come again at once, such as too many open files.
const POLL: std::time::Duration = std::time::Duration::from_millis(5);

/// Returns the address by which all nodes know this one.
pub(super) fn member(node: usize) -> String {
    format!("unix://{}", socket(node))
}

/// Returns the file name in `member`. etcd requires a port in it, and Go uses no proxy of the
/// environment for `localhost`.
fn socket(node: usize) -> String {
    format!("localhost:{}", node + 1)
}

/// Each node's links to the others, through proxies on the runtime that created them.
#[derive(Debug)]
pub(super) struct Links {
    links: Vec<Link>,
    /// The tasks that lead from the sockets to the proxies. They end when this is dropped.
    _hops: JoinSet<()>,
}

/// The link from a node to another one. It carries the messages of both, since a node connects to
/// another one also to receive.
#[derive(Debug)]
struct Link {
    from: usize,
    to: usize,
    proxy: Proxy,
}

impl Links {
    /// Links all nodes, with these directories and ports for peers.
    pub(super) async fn between_all(nodes: &[(PathBuf, u16)]) -> Result<Self, Stop> {
        let (mut links, mut hops) = (Vec::new(), JoinSet::new());
        for (from, (directory, _)) in nodes.iter().enumerate() {
            for (to, (_, port)) in nodes.iter().enumerate().filter(|(to, _)| *to != from) {
                let listener = UnixListener::bind(directory.join(socket(to)))?;
                let proxy = Proxy::start(&format!("127.0.0.1:{port}")).await?;
                hops.spawn(hop(listener, proxy.address()));
                links.push(Link { from, to, proxy });
            }
        }
        Ok(Self { links, _hops: hops })
    }

    /// Returns the sum of this counter over all links.
    pub(super) fn sum(&self, count: impl Fn(&Proxy) -> u64) -> u64 {
        self.links.iter().map(|link| count(&link.proxy)).sum()
    }

    /// Sets what happens to all bytes between the pairs of nodes for which `which` is true, in both
    /// directions.
    pub(super) fn between_those(&self, which: impl Fn(usize, usize) -> bool, flow: Flow) {
        for link in &self.links {
            if which(link.from, link.to) || which(link.to, link.from) {
                link.proxy.requests(flow);
                link.proxy.replies(flow);
            }
        }
    }
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
