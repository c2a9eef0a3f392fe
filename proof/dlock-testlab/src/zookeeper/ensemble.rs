//! An ensemble of ZooKeeper servers, with links between them that can be cut.

use std::{io, net::Ipv4Addr, sync::Arc, time::Duration};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional},
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::{Instant, sleep},
};

use super::{
    Mode, Options, ZooKeeperServer,
    server::{KIND, directory},
};
use crate::{
    Flow, Member, Proxy, Stop, Verdict,
    ensemble::{Link, Links, NODES},
    server::Ports,
};

/// Three ZooKeeper servers.
pub type Ensemble = crate::Ensemble<Options>;

impl Member for Options {
    type Role = Mode;
    const LEADER: Mode = Mode::Leader;
    const FOLLOWER: Mode = Mode::Follower;

    async fn role(node: &ZooKeeperServer) -> Result<Mode, Stop> {
        node.mode().await
    }
}

impl Ensemble {
    /// Starts all three, and waits until each of them serves.
    ///
    /// # Errors
    /// [`Stop::missing`] if ZooKeeper is not installed.
    pub async fn start(options: &Options) -> Result<Self, Stop> {
        let options = options.archived().await?;
        Self::start_as(|| Self::spawn(&options)).await
    }

    async fn spawn(options: &Options) -> Result<Self, Stop> {
        let reserved: Vec<_> = (0..NODES).map(|_| Ports::free()).collect::<Result<_, _>>()?;
        let ports: Vec<_> =
            reserved.iter().map(|(ports, _)| (ports.peers, ports.elections)).collect();
        let links = link_all(&ports).await?;
        let nodes = reserved.into_iter().enumerate().map(|(node, reserved)| {
            let options = options.clone().with_node(node + 1, lines(&links, &ports, node));
            ZooKeeperServer::spawn(&KIND, directory()?, reserved, &options)
        });
        Ok(Self { nodes: nodes.collect::<Result<_, _>>()?, links })
    }

    /// Returns the connect string for clients: `127.0.0.1:a,127.0.0.1:b,127.0.0.1:c`.
    pub fn connect_string(&self) -> String {
        self.addresses().join(",")
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
}

/// Links all nodes, which listen on these ports: for followers, and for the election.
async fn link_all(ports: &[(u16, u16)]) -> Result<Links, Stop> {
    let mut links = Links::default();
    let mut listeners = Vec::new();
    for (from, to) in (0..NODES * NODES).map(|pair| (pair / NODES, pair % NODES)) {
        if from != to {
            let (follow, follow_at) = proxy().await?;
            let (elect, elect_at) = proxy().await?;
            links.links.push(Link { from, to, proxies: vec![follow, elect] });
            listeners.push((follow_at, elect_at));
        }
    }
    for (link, (follow_at, elect_at)) in links.links.iter().zip(listeners) {
        let back = links.links.iter().find(|back| (back.from, back.to) == (link.to, link.from));
        let call_back = back.map(|back| back.proxies[1].address()).unwrap_or_default();
        let (follow, elect) = ports[link.to];
        for (listener, port, errand) in
            [(follow_at, follow, Errand::Follow), (elect_at, elect, Errand::Elect { call_back })]
        {
            links.hops.spawn(Hop { listener, node: format!("127.0.0.1:{port}"), errand }.run());
        }
    }
    Ok(links)
}

/// Returns the lines of the configuration that tell a node where it listens, and its links to the
/// others.
fn lines(links: &Links, ports: &[(u16, u16)], node: usize) -> Vec<String> {
    let mut ways = ports.to_vec();
    for link in links.links.iter().filter(|link| link.from == node) {
        ways[link.to] = (link.proxies[0].port(), link.proxies[1].port());
    }
    let lines = ways.iter().zip(1..);
    lines.map(|((follow, elect), n)| format!("server.{n}=127.0.0.1:{follow}:{elect}")).collect()
}

/// Starts a proxy, and returns it with the listener for its hop.
async fn proxy() -> Result<(Proxy, TcpListener), Stop> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    Ok((Proxy::start(&listener.local_addr()?.to_string()).await?, listener))
}

/// The longest time from the election of a leader until it listens. A follower retries for about as
/// long.
const LISTENS: Duration = Duration::from_secs(1);

const POLL: Duration = Duration::from_millis(5);

/// The maximum length of an address.
const LONGEST: usize = 1024;

/// Forwards connections from a proxy to a node at this address. Without it, nodes would notice the
/// proxy.
#[derive(Debug)]
struct Hop {
    listener: TcpListener,
    node: String,
    errand: Errand,
}

/// The purpose of the connections.
#[derive(Debug)]
enum Errand {
    /// The caller follows a node that leads. A follower whose connection is refused retries. If its
    /// connection is accepted and then closed, as by a proxy before the leader listens, it abandons
    /// the leader. So the hop waits until the leader listens.
    Follow,
    /// The nodes elect a leader, over one connection for each pair. The node with the higher number
    /// opens it. The other node opens a connection first to request that, sends on it the address
    /// for the call back, and gets it closed. That address is the one where it listens, so the call
    /// would bypass the proxy. The hop sends this address instead.
    Elect { call_back: String },
}

impl Hop {
    /// Forwards connections until it is dropped.
    async fn run(self) {
        let Self { listener, node, errand } = self;
        let way = Arc::new((node, errand));
        let mut connections = JoinSet::new();
        loop {
            while connections.try_join_next().is_some() {}
            match listener.accept().await {
                Ok((caller, _)) => {
                    let way = Arc::clone(&way);
                    connections.spawn(async move { pass_on(caller, &way.0, &way.1).await });
                }
                // For instance too many open files, which would fail again at once.
                Err(_) => sleep(POLL).await,
            }
        }
    }
}

async fn pass_on(mut caller: TcpStream, node: &str, errand: &Errand) -> io::Result<()> {
    let mut node = match errand {
        Errand::Follow => connect(node).await?,
        Errand::Elect { call_back } => {
            let mut node = TcpStream::connect(node).await?;
            node.write_all(&introduction(&mut caller, call_back).await?).await?;
            node
        }
    };
    caller.set_nodelay(true)?;
    node.set_nodelay(true)?;
    copy_bidirectional(&mut caller, &mut node).await?;
    Ok(())
}

async fn connect(node: &str) -> io::Result<TcpStream> {
    let start = Instant::now();
    loop {
        match TcpStream::connect(node).await {
            Err(_) if start.elapsed() < LISTENS => sleep(POLL).await,
            result => return result,
        }
    }
}

/// Returns the first message of the caller with the other address: a version and the node's number,
/// of eight bytes each; the length of the address, of four; and the address.
async fn introduction(caller: &mut TcpStream, call_back: &str) -> io::Result<Vec<u8>> {
    let mut who = [0; 16];
    caller.read_exact(&mut who).await?;
    let length = usize::try_from(caller.read_u32().await?).unwrap_or(usize::MAX);
    if length > LONGEST {
        return Err(io::ErrorKind::InvalidData.into());
    }
    caller.read_exact(&mut vec![0; length]).await?;
    let length = u32::try_from(call_back.len()).map_err(io::Error::other)?;
    Ok([&who[..], &length.to_be_bytes(), call_back.as_bytes()].concat())
}
