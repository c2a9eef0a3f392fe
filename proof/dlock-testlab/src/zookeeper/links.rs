//! The links between the nodes of an ensemble.

use std::net::Ipv4Addr;

use tokio::{net::TcpListener, task::JoinSet};

use super::hop::{Errand, Hop};
use crate::{Flow, Proxy, Stop, port};

/// The number of nodes in an ensemble.
pub(super) const NODES: usize = 3;

/// Each node's links to the others, through proxies on the runtime that created them.
#[derive(Debug)]
pub(super) struct Links {
    links: Vec<Link>,
    /// The ports that the nodes listen on: for followers, and for the election.
    ports: Vec<(u16, u16)>,
    /// The tasks of the hops, which end when this is dropped.
    _hops: JoinSet<()>,
}

/// The link from a node to another one.
#[derive(Debug)]
struct Link {
    from: usize,
    to: usize,
    follow: Proxy,
    elect: Proxy,
}

impl Links {
    /// Links all nodes, and assigns their ports.
    pub(super) async fn between_all() -> Result<Self, Stop> {
        let ports: [u16; 2 * NODES] = port::server_only()?;
        let ports: Vec<_> = ports.chunks(2).map(|pair| (pair[0], pair[1])).collect();
        let (mut links, mut listeners) = (Vec::new(), Vec::new());
        for (from, to) in (0..NODES * NODES).map(|pair| (pair / NODES, pair % NODES)) {
            if from != to {
                let (follow, follow_at) = proxy().await?;
                let (elect, elect_at) = proxy().await?;
                links.push(Link { from, to, follow, elect });
                listeners.push((follow_at, elect_at));
            }
        }
        let mut hops = JoinSet::new();
        for (link, (follow_at, elect_at)) in links.iter().zip(listeners) {
            let back = links.iter().find(|back| (back.from, back.to) == (link.to, link.from));
            let call_back = back.map(|back| back.elect.address()).unwrap_or_default();
            let (follow, elect) = ports[link.to];
            for (listener, port, errand) in [
                (follow_at, follow, Errand::Follow),
                (elect_at, elect, Errand::Elect { call_back }),
            ] {
                hops.spawn(Hop { listener, node: format!("127.0.0.1:{port}"), errand }.run());
            }
        }
        Ok(Self { links, ports, _hops: hops })
    }

    /// Returns the lines of the configuration that tell a node where it listens, and its links to
    /// the others.
    pub(super) fn lines(&self, node: usize) -> Vec<String> {
        let mut ways = self.ports.clone();
        for link in self.links.iter().filter(|link| link.from == node) {
            ways[link.to] = (link.follow.port(), link.elect.port());
        }
        let lines = ways.iter().zip(1..);
        lines.map(|((follow, elect), n)| format!("server.{n}=127.0.0.1:{follow}:{elect}")).collect()
    }

    /// Returns the sum of this counter over all links.
    pub(super) fn sum(&self, count: impl Fn(&Proxy) -> u64) -> u64 {
        self.links.iter().map(|link| count(&link.follow) + count(&link.elect)).sum()
    }

    /// Sets what happens to all bytes between the pairs of nodes for which `which` is true, in both
    /// directions.
    pub(super) fn between_those(&self, which: impl Fn(usize, usize) -> bool, flow: Flow) {
        for link in &self.links {
            if which(link.from, link.to) || which(link.to, link.from) {
                for proxy in [&link.follow, &link.elect] {
                    proxy.requests(flow);
                    proxy.replies(flow);
                }
            }
        }
    }
}

/// Starts a proxy, and returns it with the listener for its hop.
async fn proxy() -> Result<(Proxy, TcpListener), Stop> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    Ok((Proxy::start(&listener.local_addr()?.to_string()).await?, listener))
}
