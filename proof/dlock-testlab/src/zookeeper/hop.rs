//! A hop between a proxy and a node. Without it, nodes would notice the proxy.

use std::{io, sync::Arc, time::Duration};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional},
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::{Instant, sleep},
};

/// The longest time from the election of a leader until it listens. A follower retries for about as
/// long.
const LISTENS: Duration = Duration::from_secs(1);

const POLL: Duration = Duration::from_millis(5);

/// The maximum length of an address.
const LONGEST: usize = 1024;

/// Forwards connections to this address.
#[derive(Debug)]
pub(super) struct Hop {
    pub(super) listener: TcpListener,
    pub(super) node: String,
    pub(super) errand: Errand,
}

/// The purpose of the connections.
#[derive(Debug)]
pub(super) enum Errand {
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
    pub(super) async fn run(self) {
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
