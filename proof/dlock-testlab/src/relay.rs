//! The tasks of a proxy: one that accepts connections, and one for each connection. All of them end
//! when the proxy is dropped, because then no value can send them commands.

use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use rustix::net::sockopt::set_socket_linger;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpSocket, TcpStream,
        tcp::{ReadHalf, WriteHalf},
    },
    runtime::Handle,
    sync::watch,
    time::sleep,
};

use super::{
    line::Line,
    pushes::{Filter, Protocol},
};

/// The treatment of the bytes of one direction. It applies to open connections too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Flow {
    /// They pass.
    #[default]
    Pass,
    /// They are forwarded after this delay, or later. Further bytes are read meanwhile, and each is
    /// delayed for as long.
    Delay(Duration),
    /// They wait until the rule changes, as in a network that is cut and heals.
    Hold,
    /// They are dropped for good. The peer can't parse the bytes that follow, so end the
    /// connections before the next change.
    Drop,
}

/// The treatment of new connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Door {
    /// They are forwarded.
    #[default]
    Open,
    /// They are accepted and never answered, whether the server runs or not.
    Silent,
    /// They are refused.
    Closed,
}

/// The state that the tasks watch.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rules {
    pub(super) requests: Flow,
    pub(super) replies: Flow,
    pub(super) door: Door,
    /// Whether pushed messages of the server are dropped.
    pub(super) lose_pushes: bool,
    /// The connections up to this number are stranded.
    pub(super) stranded: u64,
    /// Whether the clients of the stranded connections have lost them.
    pub(super) abandoned: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Reset,
    Finish,
}

/// Counters of a proxy, which prove that a fault had an effect.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) connections: AtomicU64,
    pub(super) requests: AtomicU64,
    pub(super) replies: AtomicU64,
    pub(super) round_trips: AtomicU64,
    pub(super) answers: AtomicU64,
    pub(super) pushes: AtomicU64,
    pub(super) cuts: AtomicU64,
    pub(super) silenced: AtomicU64,
    pub(super) held: AtomicU64,
    pub(super) delayed: AtomicU64,
    pub(super) dropped: AtomicU64,
    pub(super) lost_pushes: AtomicU64,
}

impl Counts {
    /// Counts the bytes that this flow affected.
    fn meet(&self, flow: Flow, bytes: usize) {
        let count = match flow {
            Flow::Pass => return,
            Flow::Delay(_) => &self.delayed,
            Flow::Hold => &self.held,
            Flow::Drop => &self.dropped,
        };
        add(count, bytes);
    }
}

fn add(count: &AtomicU64, more: usize) {
    count.fetch_add(u64::try_from(more).unwrap_or(u64::MAX), Ordering::Relaxed);
}

pub(super) struct Acceptor {
    pub(super) server: Arc<Mutex<String>>,
    pub(super) protocol: Option<Protocol>,
    pub(super) address: SocketAddr,
    pub(super) rules: watch::Receiver<Rules>,
    pub(super) ends: watch::Receiver<End>,
    pub(super) listening: watch::Sender<bool>,
    pub(super) counts: Arc<Counts>,
}

impl Acceptor {
    /// Opens and closes the door on command, and accepts connections while it is open.
    pub(super) async fn run(mut self, mut listener: TcpListener) {
        loop {
            if !self.until_closed(&listener).await {
                return;
            }
            drop(listener);
            // A bound socket that does not listen refuses connections and keeps the port.
            let mut kept = bound(self.address).ok();
            self.listening.send_replace(false);
            if !until(&mut self.rules, |rules| rules.door != Door::Closed).await {
                return;
            }
            listener = loop {
                let socket = kept.take().map_or_else(|| bound(self.address), Ok);
                match socket.and_then(|socket| socket.listen(1024)) {
                    Ok(listener) => break listener,
                    Err(_) if self.rules.has_changed().is_err() => return,
                    // Another process has the port, perhaps only for a moment.
                    Err(_) => sleep(Duration::from_millis(20)).await,
                }
            };
            self.listening.send_replace(true);
        }
    }

    /// Accepts connections until the door is closed; returns `false` if the proxy was dropped.
    async fn until_closed(&mut self, listener: &TcpListener) -> bool {
        loop {
            tokio::select! {
                closed = until(&mut self.rules, |rules| rules.door == Door::Closed) => return closed,
                client = listener.accept() => match client {
                    Ok((client, _)) => self.accept(client),
                    // For instance too many open files, which would fail again at once.
                    Err(_) => sleep(Duration::from_millis(20)).await,
                },
            }
        }
    }

    fn accept(&self, client: TcpStream) {
        let number = self.counts.connections.fetch_add(1, Ordering::Relaxed) + 1;
        let mut ends = self.ends.clone();
        ends.mark_unchanged();
        let rules = self.rules.clone();
        let (counts, filter) = (Arc::clone(&self.counts), self.protocol.map(Filter::new));
        let link = RelayedConnection { number, client, server: None, rules, counts, filter };
        Handle::current().spawn(link.run(self.server.lock().clone(), ends));
    }
}

/// A connection of a client, with its connection to the server.
struct RelayedConnection {
    number: u64,
    client: TcpStream,
    server: Option<TcpStream>,
    rules: watch::Receiver<Rules>,
    counts: Arc<Counts>,
    filter: Option<Filter>,
}

impl RelayedConnection {
    async fn run(mut self, server: String, mut ends: watch::Receiver<End>) {
        let end = tokio::select! {
            // An error means that one connection is closed: close both.
            _ = self.pass_on(&server) => None,
            told = ends.changed() => told.ok().map(|()| *ends.borrow()),
        };
        add(&self.counts.cuts, usize::from(end.is_some()));
        if end == Some(End::Reset) {
            for socket in std::iter::once(&self.client).chain(&self.server) {
                // Fails only if the connection is closed.
                let _ = set_socket_linger(socket, Some(Duration::ZERO));
            }
        }
    }

    async fn pass_on(&mut self, server: &str) -> io::Result<()> {
        let (counts, rules, number) = (&*self.counts, &self.rules, self.number);
        if rules.borrow().door == Door::Silent {
            add(&counts.silenced, 1);
            let nowhere = &mut tokio::io::empty();
            let _: u64 = tokio::io::copy(&mut self.client, nowhere).await?;
            return Ok(());
        }
        let requests = |rules: &Rules| rules.requests;
        let replies = |rules: &Rules| rules.replies;
        // True if the client has sent nothing since the server did.
        let answered = &AtomicBool::new(true);
        let mut requests =
            Way { number, rules: rules.clone(), flow: requests, counts, filter: None, answered };
        let filter = self.filter.take();
        let replies = Way { number, rules: rules.clone(), flow: replies, counts, filter, answered };
        let server = match TcpStream::connect(server).await {
            Ok(server) => self.server.insert(server),
            Err(error) => return Err(requests.failure(error).await),
        };
        self.client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        let (from_client, to_client) = self.client.split();
        let (from_server, to_server) = server.split();
        tokio::try_join!(
            requests.pass(from_client, to_server, Side::Client),
            replies.pass(from_server, to_client, Side::Server),
        )?;
        Ok(())
    }
}

/// One direction of a connection.
struct Way<'a> {
    number: u64,
    rules: watch::Receiver<Rules>,
    flow: fn(&Rules) -> Flow,
    counts: &'a Counts,
    filter: Option<Filter>,
    answered: &'a AtomicBool,
}

/// The sender of the bytes.
#[derive(Clone, Copy)]
enum Side {
    Client,
    Server,
}

impl Way<'_> {
    async fn pass(
        mut self,
        mut from: ReadHalf<'_>,
        mut to: WriteHalf<'_>,
        side: Side,
    ) -> io::Result<()> {
        let mut bytes = Vec::with_capacity(16 * 1024);
        let (mut abandoned, mut ended, mut rules) = (false, false, self.rules.clone());
        let mut line = Line::default();
        loop {
            bytes.clear();
            let length = tokio::select! {
                length = from.read_buf(&mut bytes), if !ended && !line.is_full() => length,
                due = line.next(), if !line.is_empty() => {
                    self.forward(&due?, &mut to, side).await?;
                    if ended && line.is_empty() {
                        return to.shutdown().await;
                    }
                    continue;
                }
                () = lost(&mut rules, self.number), if !abandoned && matches!(side, Side::Server) => {
                    abandoned = true;
                    to.shutdown().await?;
                    continue;
                }
            };
            if self.is_stranded() {
                match side {
                    Side::Client => return self.bring_late(bytes, length, from, to).await,
                    Side::Server if matches!(length, Ok(1..)) => continue,
                    Side::Server => {}
                }
            }
            let length = match length {
                Ok(length) => length,
                Err(error) => return Err(self.failure(error).await),
            };
            if length > 0 {
                self.spoke(side, length);
            }
            self.filter(&mut bytes, length == 0);
            match self.flow_now(bytes.len()).await? {
                // The end of a stream can't be lost: TCP resends it until it arrives.
                Flow::Drop if length == 0 => {
                    self.until(|flow| !matches!(flow, Flow::Drop | Flow::Hold)).await?;
                }
                Flow::Drop => continue,
                Flow::Delay(delay) => line.push(&bytes, delay),
                Flow::Pass | Flow::Hold if !line.is_empty() => line.push(&bytes, Duration::ZERO),
                Flow::Pass | Flow::Hold => self.forward(&bytes, &mut to, side).await?,
            }
            ended = length == 0;
            if ended && line.is_empty() {
                return to.shutdown().await;
            }
        }
    }

    async fn forward(
        &mut self,
        bytes: &[u8],
        to: &mut WriteHalf<'_>,
        side: Side,
    ) -> io::Result<()> {
        if matches!(side, Side::Server) && !bytes.is_empty() {
            self.answered.store(true, Ordering::Relaxed);
        }
        to.write_all(bytes).await
    }

    fn is_stranded(&self) -> bool {
        self.number <= self.rules.borrow().stranded
    }

    /// Reads all bytes of the client on a stranded connection before the connection is lost.
    /// Delivers them when the connection is no longer stranded.
    async fn bring_late(
        mut self,
        mut bytes: Vec<u8>,
        mut read: io::Result<usize>,
        mut from: ReadHalf<'_>,
        mut to: WriteHalf<'_>,
    ) -> io::Result<()> {
        while let Ok(length @ 1..) = read {
            self.spoke(Side::Client, length);
            read = tokio::select! {
                read = from.read_buf(&mut bytes) => read,
                () = arrives(&mut self.rules, self.number) => break,
            };
        }
        arrives(&mut self.rules, self.number).await;
        if self.rules.has_changed().is_ok() {
            to.write_all(&bytes).await?;
            to.shutdown().await?;
        }
        Ok(())
    }

    /// Counts bytes that were sent.
    fn spoke(&self, side: Side, bytes: usize) {
        match side {
            Side::Client => {
                let first = self.answered.swap(false, Ordering::Relaxed);
                add(&self.counts.requests, bytes);
                add(&self.counts.round_trips, usize::from(first));
            }
            Side::Server => add(&self.counts.replies, bytes),
        }
    }

    /// Removes the pushed messages, if they must be lost.
    fn filter(&mut self, bytes: &mut Vec<u8>, ended: bool) {
        if let Some(filter) = &mut self.filter {
            let seen = filter.pass(bytes, self.rules.borrow().lose_pushes);
            let add = |count: &AtomicU64, more| count.fetch_add(more, Ordering::Relaxed);
            add(&self.counts.answers, seen.answers);
            add(&self.counts.pushes, seen.pushes);
            add(&self.counts.lost_pushes, seen.lost);
            if ended {
                *bytes = filter.rest();
            }
        }
    }

    /// Returns the error of one side as soon as the other side may learn of it.
    async fn failure(&mut self, error: io::Error) -> io::Error {
        self.until(|flow| flow != Flow::Hold).await.err().unwrap_or(error)
    }

    /// Waits until the bytes that were read may be handled, and returns how to handle them.
    async fn flow_now(&mut self, bytes: usize) -> io::Result<Flow> {
        let held = (self.flow)(&self.rules.borrow()) == Flow::Hold;
        if held {
            self.counts.meet(Flow::Hold, bytes);
        }
        let flow = self.until(|flow| flow != Flow::Hold).await?;
        self.counts.meet(flow, bytes);
        Ok(flow)
    }

    async fn until(&mut self, wanted: fn(Flow) -> bool) -> io::Result<Flow> {
        let flow = self.flow;
        match self.rules.wait_for(|rules| wanted(flow(rules))).await {
            Ok(rules) => Ok(flow(&rules)),
            Err(_) => Err(io::ErrorKind::ConnectionAborted.into()),
        }
    }
}

/// Waits until the client of this stranded connection must lose it.
async fn lost(rules: &mut watch::Receiver<Rules>, number: u64) {
    let lost = rules.wait_for(|rules| rules.abandoned && number <= rules.stranded).await.is_ok();
    if !lost {
        std::future::pending().await
    }
}

/// Waits until the connection of this number is no longer stranded, or the proxy is dropped.
async fn arrives(rules: &mut watch::Receiver<Rules>, number: u64) {
    let _ = rules.wait_for(|rules| number > rules.stranded).await.is_ok();
}

/// Waits until the rules meet this condition; returns `false` if the proxy was dropped.
async fn until(rules: &mut watch::Receiver<Rules>, wanted: fn(&Rules) -> bool) -> bool {
    rules.wait_for(wanted).await.is_ok()
}

fn bound(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = TcpSocket::new_v4()?;
    // Without this, the former connections would occupy the port for minutes.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(socket)
}
