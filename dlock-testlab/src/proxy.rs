//! A TCP proxy that puts faults between a client and a server.

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::{Arc, atomic::Ordering},
};

use parking_lot::Mutex;
use tokio::{net::TcpListener, runtime::Handle, sync::watch};

use super::{
    counts::Counts,
    pushes::Protocol,
    relay::Acceptor,
    rules::{Door, End, Flow, Rules},
    wait::until,
};
use crate::{Stop, Verdict};

/// A TCP proxy on a free port of the loopback interface. It passes everything on until it is told
/// otherwise, and ends with its connections when dropped.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    rules: watch::Sender<Rules>,
    /// How all connections were ended the last time.
    ends: watch::Sender<End>,
    listening: watch::Receiver<bool>,
    server: Arc<Mutex<String>>,
    counts: Arc<Counts>,
}

impl Proxy {
    /// Starts a proxy in front of this address, on the runtime that runs this.
    ///
    /// # Errors
    /// Outside of a runtime, and when there is no port.
    pub async fn start(server: &str) -> Result<Self, Stop> {
        Self::start_with(server, None).await
    }

    /// The same for clients that speak this protocol, without TLS: what the server sends them
    /// unasked can be [lost](Self::lose_pushes).
    ///
    /// # Errors
    /// As for [`Self::start`].
    pub async fn start_for(server: &str, protocol: Protocol) -> Result<Self, Stop> {
        Self::start_with(server, Some(protocol)).await
    }

    async fn start_with(server: &str, protocol: Option<Protocol>) -> Result<Self, Stop> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
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

    /// Where it listens: `127.0.0.1:port`.
    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// The port it listens on.
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

    /// Sets what happens to new connections, and waits until it holds. Those that are open stay,
    /// unless they are [cut](Self::cut).
    ///
    /// # Errors
    /// When somebody took the port while nobody listened.
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

    /// Nothing passes in either direction and no connection ends, whatever becomes of the server or
    /// of clients; new ones are accepted, too. So each side believes that the other one is slow,
    /// until it [passes](Self::pass) again or is [cut](Self::cut).
    pub fn half_open(&self) {
        self.rules.send_modify(|rules| (rules.requests, rules.replies) = (Flow::Hold, Flow::Hold));
    }

    /// Nothing passes on the connections that are open now, whatever becomes of their clients, until
    /// it [arrives](Self::arrive) all together; new connections pass. So it is in a network that is
    /// cut, and heals when the clients go on over other connections: what they have sent is sent
    /// again by their systems. No answer comes back.
    pub fn strand(&self) {
        let stranded = self.connections();
        self.rules.send_modify(|rules| (rules.stranded, rules.abandoned) = (stranded, false));
    }

    /// The clients of [stranded](Self::strand) connections learn that these are closed. What they have
    /// sent is still on its way.
    pub fn abandon(&self) {
        self.rules.send_modify(|rules| rules.abandoned = true);
    }

    /// All that is [stranded](Self::strand) arrives, as the last on its connections.
    pub fn arrive(&self) {
        self.rules.send_modify(|rules| rules.stranded = 0);
    }

    /// What the server sends unasked gets lost from now on, such as the messages of a subscription,
    /// and nothing else: no client can see that. It takes a [protocol](Self::start_for).
    pub fn lose_pushes(&self) {
        self.rules.send_modify(|rules| rules.lose_pushes = true);
    }

    /// What the server sends unasked passes again. What got lost is gone for good.
    pub fn pass_pushes(&self) {
        self.rules.send_modify(|rules| rules.lose_pushes = false);
    }

    /// Has new connections lead to another server, as when an address moves. Those that are open
    /// stay, unless they are [cut](Self::cut).
    pub fn lead_to(&self, server: &str) {
        server.clone_into(&mut self.server.lock());
    }

    /// Everything passes again, on connections that are open and on new ones.
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

    /// Resets all connections, as a firewall does; what was on the way is lost. It happens a moment
    /// later, and not to connections that are accepted after this.
    pub fn cut(&self) {
        self.ends.send_replace(End::Reset);
    }

    /// Closes all connections in an orderly way, as a server does that shuts down.
    pub fn hang_up(&self) {
        self.ends.send_replace(End::Finish);
    }
}

/// What it has done since its start. Connections that a closed door refused are not counted: the
/// system refuses them, and tells nobody.
impl Proxy {
    /// How many connections there were.
    pub fn connections(&self) -> u64 {
        self.counts.connections.load(Ordering::Relaxed)
    }

    /// How many bytes came from clients, passed on or not.
    pub fn request_bytes(&self) -> u64 {
        self.counts.requests.load(Ordering::Relaxed)
    }

    /// How many bytes came from the server, passed on or not.
    pub fn reply_bytes(&self) -> u64 {
        self.counts.replies.load(Ordering::Relaxed)
    }

    /// How often a client has spoken on a connection first, or after the server had: the round
    /// trips, when the client waits for each answer. Requests that it sends together are one.
    pub fn round_trips(&self) -> u64 {
        self.counts.round_trips.load(Ordering::Relaxed)
    }

    /// How many answers have come whole from the server. It takes a
    /// [protocol](Self::start_for): a command of Redis and a request of ZooKeeper have one answer
    /// each, a statement of PostgreSQL has several.
    pub fn answers(&self) -> u64 {
        self.counts.answers.load(Ordering::Relaxed)
    }

    /// How many messages have come whole that nobody asked for, lost or not. It takes a
    /// [protocol](Self::start_for).
    pub fn pushes(&self) -> u64 {
        self.counts.pushes.load(Ordering::Relaxed)
    }

    /// How many connections it has reset or closed when it was [told to](Self::cut).
    pub fn cuts(&self) -> u64 {
        self.counts.cuts.load(Ordering::Relaxed)
    }

    /// How many connections a [silent door](Door::Silent) has accepted.
    pub fn silenced(&self) -> u64 {
        self.counts.silenced.load(Ordering::Relaxed)
    }

    /// How many bytes have come that had to wait because of [`Flow::Hold`], whether they have
    /// passed since or not. More may wait behind them, where the proxy does not see them yet.
    pub fn held_bytes(&self) -> u64 {
        self.counts.held.load(Ordering::Relaxed)
    }

    /// How many bytes have passed later because of [`Flow::Delay`], or are about to.
    pub fn delayed_bytes(&self) -> u64 {
        self.counts.delayed.load(Ordering::Relaxed)
    }

    /// How many bytes are gone because of [`Flow::Drop`].
    pub fn dropped_bytes(&self) -> u64 {
        self.counts.dropped.load(Ordering::Relaxed)
    }

    /// How many messages of the server are gone that [nobody asked for](Self::lose_pushes).
    pub fn lost_pushes(&self) -> u64 {
        self.counts.lost_pushes.load(Ordering::Relaxed)
    }
}
