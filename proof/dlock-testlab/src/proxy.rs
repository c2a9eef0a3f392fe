//! A TCP proxy that injects faults between a client and a server.

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::{Arc, atomic::Ordering},
};

use parking_lot::Mutex;
use tokio::{net::TcpListener, runtime::Handle, sync::watch};

use super::{
    pushes::Protocol,
    relay::{Acceptor, Counts, Door, End, Flow, Rules},
    wait::until,
};
use crate::{Stop, Verdict};

/// A TCP proxy, by default on a free port of the loopback interface. It forwards everything until a fault is
/// injected. When it is dropped, it ends and closes its connections.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    rules: watch::Sender<Rules>,
    /// How all connections were closed the last time.
    ends: watch::Sender<End>,
    listening: watch::Receiver<bool>,
    server: Arc<Mutex<String>>,
    counts: Arc<Counts>,
}

impl Proxy {
    /// Starts a proxy for the server at this address, on the current runtime.
    ///
    /// # Errors
    /// Outside of a runtime, and if no port is available.
    pub async fn start(server: &str) -> Result<Self, Stop> {
        Self::start_with((Ipv4Addr::LOCALHOST, 0).into(), server, None).await
    }

    /// Starts a proxy that listens at this address.
    ///
    /// # Errors
    /// As for [`Self::start`].
    pub async fn start_at(listen: SocketAddr, server: &str) -> Result<Self, Stop> {
        Self::start_with(listen, server, None).await
    }

    /// Starts a proxy for clients that speak this protocol without TLS. Messages that the server
    /// pushes can be [lost](Self::lose_pushes).
    ///
    /// # Errors
    /// As for [`Self::start`].
    pub async fn start_for(server: &str, protocol: Protocol) -> Result<Self, Stop> {
        Self::start_with((Ipv4Addr::LOCALHOST, 0).into(), server, Some(protocol)).await
    }

    async fn start_with(
        listen: SocketAddr,
        server: &str,
        protocol: Option<Protocol>,
    ) -> Result<Self, Stop> {
        let listener = TcpListener::bind(listen).await?;
        let address = listener.local_addr()?;
        let rules = watch::Sender::new(Rules::default());
        let ends = watch::Sender::new(End::Finish);
        let (says_listening, listening) = watch::channel(true);
        let counts = Arc::default();
        let server = Arc::new(Mutex::new(server.to_owned()));
        let acceptor = Acceptor {
            server: Arc::clone(&server),
            protocol,
            address,
            rules: rules.subscribe(),
            ends: ends.subscribe(),
            listening: says_listening,
            counts: Arc::clone(&counts),
        };
        Handle::try_current()?.spawn(acceptor.run(listener));
        Ok(Self { address, rules, ends, listening, server, counts })
    }

    /// Returns the address that the proxy listens on, such as `127.0.0.1:port`.
    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// Returns the port that the proxy listens on.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Sets what happens to the bytes from clients to the server.
    pub fn requests(&self, flow: Flow) {
        self.rules.send_modify(|rules| rules.requests = flow);
    }

    /// Sets what happens to the bytes from the server to clients.
    pub fn replies(&self, flow: Flow) {
        self.rules.send_modify(|rules| rules.replies = flow);
    }

    /// Sets what happens to new connections, and waits until that is in effect. Open connections
    /// stay open unless they are [cut](Self::cut).
    ///
    /// # Errors
    /// If another process took the port while the proxy did not listen.
    pub async fn door(&self, door: Door) -> Verdict {
        self.rules.send_modify(|rules| rules.door = door);
        let listens = door != Door::Closed;
        until("the proxy's door moves", || async {
            match *self.listening.borrow() == listens {
                true => Ok(()),
                false => Err(Stop::failed("not yet")),
            }
        })
        .await
    }

    /// Forwards nothing in either direction and closes no connection, even if the server or a
    /// client closes its end. New connections are accepted too. So each side considers the other
    /// one slow, until the proxy [passes](Self::pass) bytes again or the connections are
    /// [cut](Self::cut).
    pub fn half_open(&self) {
        self.rules.send_modify(|rules| (rules.requests, rules.replies) = (Flow::Hold, Flow::Hold));
    }

    /// Forwards nothing on the connections that are open now, even if their clients close them. The
    /// bytes [arrive](Self::arrive) later, all together. New connections are forwarded. This
    /// simulates a network that is cut and heals after the clients have continued over other
    /// connections: the clients' systems resend the bytes that they sent before. The clients get no
    /// answers to these bytes.
    pub fn strand(&self) {
        let stranded = self.connections();
        self.rules.send_modify(|rules| (rules.stranded, rules.abandoned) = (stranded, false));
    }

    /// Closes [stranded](Self::strand) connections towards their clients. The bytes that the
    /// clients have sent are still pending.
    pub fn abandon(&self) {
        self.rules.send_modify(|rules| rules.abandoned = true);
    }

    /// Delivers the bytes of [stranded](Self::strand) connections, as the last bytes on these
    /// connections.
    pub fn arrive(&self) {
        self.rules.send_modify(|rules| rules.stranded = 0);
    }

    /// Drops messages that the server pushes, such as the messages of a subscription, and nothing
    /// else. A client can't detect that. The proxy needs a [protocol](Self::start_for).
    pub fn lose_pushes(&self) {
        self.rules.send_modify(|rules| rules.lose_pushes = true);
    }

    /// Stops dropping messages that the server pushes. Messages that were dropped stay lost.
    pub fn pass_pushes(&self) {
        self.rules.send_modify(|rules| rules.lose_pushes = false);
    }

    /// Forwards new connections to another server, as if an address moved. Open connections stay
    /// open unless they are [cut](Self::cut).
    pub fn lead_to(&self, server: &str) {
        server.clone_into(&mut self.server.lock());
    }

    /// Ends all faults, on open connections and on new ones.
    ///
    /// # Errors
    /// As for [`Self::door`].
    pub async fn pass(&self) -> Verdict {
        self.requests(Flow::Pass);
        self.replies(Flow::Pass);
        self.pass_pushes();
        self.arrive();
        self.door(Door::Open).await
    }

    /// Resets all connections, as a firewall does; bytes in flight are lost. The reset takes effect
    /// a moment later, and not on connections that are accepted after this call.
    pub fn cut(&self) {
        self.ends.send_replace(End::Reset);
    }

    /// Closes all connections in an orderly way, as a server does when it shuts down.
    pub fn hang_up(&self) {
        self.ends.send_replace(End::Finish);
    }
}

/// Counters since the proxy's start. Connections that a closed door refused are not counted: the
/// system refuses them without a notice to the proxy.
impl Proxy {
    /// Returns the number of accepted connections.
    pub fn connections(&self) -> u64 {
        self.counts.connections.load(Ordering::Relaxed)
    }

    /// Returns the number of bytes from clients, forwarded or not.
    pub fn request_bytes(&self) -> u64 {
        self.counts.requests.load(Ordering::Relaxed)
    }

    /// Returns the number of bytes from the server, forwarded or not.
    pub fn reply_bytes(&self) -> u64 {
        self.counts.replies.load(Ordering::Relaxed)
    }

    /// Returns how often a client sent the first bytes on a connection, or bytes after the
    /// server's. If the client waits for each answer, this is the number of round trips. Requests
    /// that a client sends together count as one.
    pub fn round_trips(&self) -> u64 {
        self.counts.round_trips.load(Ordering::Relaxed)
    }

    /// Returns the number of complete answers from the server. The proxy needs a
    /// [protocol](Self::start_for). A Redis command, a ZooKeeper request and an etcd request have one
    /// answer each; a PostgreSQL statement has several.
    pub fn answers(&self) -> u64 {
        self.counts.answers.load(Ordering::Relaxed)
    }

    /// Returns the number of complete messages that the server pushed, lost or not. The proxy needs
    /// a [protocol](Self::start_for).
    pub fn pushes(&self) -> u64 {
        self.counts.pushes.load(Ordering::Relaxed)
    }

    /// Returns the number of connections that were [cut](Self::cut) or closed on request.
    pub fn cuts(&self) -> u64 {
        self.counts.cuts.load(Ordering::Relaxed)
    }

    /// Returns the number of connections that a [silent door](Door::Silent) has accepted.
    pub fn silenced(&self) -> u64 {
        self.counts.silenced.load(Ordering::Relaxed)
    }

    /// Returns the number of bytes that had to wait because of [`Flow::Hold`], forwarded since or
    /// not. More may wait behind them that the proxy has not read yet.
    pub fn held_bytes(&self) -> u64 {
        self.counts.held.load(Ordering::Relaxed)
    }

    /// Returns the number of bytes that were, or will be, forwarded late because of
    /// [`Flow::Delay`].
    pub fn delayed_bytes(&self) -> u64 {
        self.counts.delayed.load(Ordering::Relaxed)
    }

    /// Returns the number of bytes that [`Flow::Drop`] dropped.
    pub fn dropped_bytes(&self) -> u64 {
        self.counts.dropped.load(Ordering::Relaxed)
    }

    /// Returns the number of pushed messages that were [dropped](Self::lose_pushes).
    pub fn lost_pushes(&self) -> u64 {
        self.counts.lost_pushes.load(Ordering::Relaxed)
    }
}
