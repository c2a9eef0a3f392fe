//! The surroundings of the service: its instances as the load balancer sees them, their clients, and
//! their connections to the store.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use async_trait::async_trait;
use dlock::Locks;
use dlock_core::{
    AcquireRequest, Acquired, Admin, Answer, Backend, Claim, Clock, DynBackend, Error, ErrorKind,
    Grant, Guarantees, LockName, LockState, Released, Renewal, Renewed, StoreEvents,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
    time::sleep,
};

use crate::{
    Failure,
    app::{self, App, Phase, Settings},
    stock::Stock,
};

/// One instance of the service as the load balancer sees it: an address. In production it is a
/// process; here all instances share one process.
pub(crate) struct Instance {
    pub(crate) address: SocketAddr,
    phase: watch::Sender<Phase>,
    serving: JoinSet<Result<(), Failure>>,
}

impl Instance {
    /// Starts the instance on a free port.
    pub(crate) async fn start(
        locks: &Locks,
        stock: &Arc<Stock>,
        settings: Settings,
    ) -> Result<Self, Failure> {
        let phase = watch::Sender::new(Phase::Serving);
        let app = App::new(locks, Arc::clone(stock), settings, phase.subscribe())?;
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let mut serving = JoinSet::new();
        serving.spawn(app::serve(listener, app));
        Ok(Self { address, phase, serving })
    }

    /// Sends a request such as `GET /ready` to the instance, and waits for the response.
    pub(crate) async fn send(&self, request: &str) -> Result<Reply, Failure> {
        send(self.address, request).await
    }

    /// The first step of a shutdown: the instance is no longer ready. A real service now waits
    /// until the load balancer has noticed.
    pub(crate) fn drain(&self) {
        self.phase.send_replace(Phase::Draining);
    }

    /// The second step: the instance accepts no more connections.
    pub(crate) fn stop(&self) {
        self.phase.send_replace(Phase::Stopping);
    }

    /// Waits until the requests have finished and the locks are released.
    pub(crate) async fn ended(mut self) -> Result<(), Failure> {
        while let Some(served) = self.serving.join_next().await {
            served??;
        }
        Ok(())
    }

    /// Does all steps of a shutdown.
    pub(crate) async fn shut_down(self) -> Result<(), Failure> {
        self.drain();
        self.stop();
        self.ended().await
    }
}

/// A response. The client implements as much of HTTP/1.1 as the example needs.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    /// The seconds after which the client should retry, if the server sent them.
    pub(crate) retry_after: Option<u64>,
    pub(crate) text: String,
}

/// Sends a request such as `GET /ready`, and waits for the response.
pub(crate) async fn send(server: SocketAddr, request: &str) -> Result<Reply, Failure> {
    let mut stream = start(server, request).await?;
    let mut response = String::new();
    stream.read_to_string(&mut response).await?;
    let (head, text) = response.split_once("\r\n\r\n").ok_or("a response without an end")?;
    let mut lines = head.lines();
    let status = lines.next().and_then(|line| line.split(' ').nth(1)).ok_or("no status")?;
    let headers = lines.filter_map(|line| line.split_once(": "));
    let retry_after = headers
        .filter(|(name, _)| name.eq_ignore_ascii_case("retry-after"))
        .map(|(_, seconds)| seconds.parse())
        .next()
        .transpose()?;
    Ok(Reply { status: status.parse()?, retry_after, text: text.to_owned() })
}

/// Sends a request and returns the connection. The caller reads the response or hangs up.
pub(crate) async fn start(server: SocketAddr, request: &str) -> Result<TcpStream, Failure> {
    let mut stream = TcpStream::connect(server).await?;
    let head = "HTTP/1.1\r\nhost: example\r\ncontent-length: 0\r\nconnection: close";
    stream.write_all(format!("{request} {head}\r\n\r\n").as_bytes()).await?;
    Ok(stream)
}

/// Sends a request, and retries while the server asks for a retry.
pub(crate) async fn send_patiently(server: SocketAddr, request: &str) -> Result<Reply, Failure> {
    loop {
        let reply = send(server, request).await?;
        match reply.retry_after {
            Some(seconds) => sleep(Duration::from_secs(seconds)).await,
            None => return Ok(reply),
        }
    }
}

/// The connection of one instance to the store, with a switch: while it is cut, no request of this
/// instance reaches the store. A real service does not need it.
#[derive(Debug)]
pub(crate) struct Link {
    inner: DynBackend,
    cut: AtomicBool,
}

impl Link {
    pub(crate) fn new(inner: DynBackend) -> Arc<Self> {
        Arc::new(Self { inner, cut: AtomicBool::new(false) })
    }

    pub(crate) fn cut(&self) {
        self.cut.store(true, SeqCst);
    }

    pub(crate) fn restore(&self) {
        self.cut.store(false, SeqCst);
    }

    fn reach(&self) -> Result<(), Error> {
        match self.cut.load(SeqCst) {
            false => Ok(()),
            true => Err(Error::new(ErrorKind::Unavailable, "the link is cut: restore it")),
        }
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl Backend for Link {
    fn store(&self) -> &str {
        self.inner.store()
    }
    fn guarantees(&self) -> Guarantees {
        self.inner.guarantees()
    }
    fn clock(&self) -> Clock {
        self.inner.clock()
    }
    fn shard(&self, name: &LockName) -> u32 {
        self.inner.shard(name)
    }
    fn longest_lease(&self) -> Duration {
        self.inner.longest_lease()
    }
    fn check_lease(&self, lease: Duration) -> Result<(), Error> {
        self.inner.check_lease(lease)
    }
    fn response_timeout(&self) -> Duration {
        self.inner.response_timeout()
    }
    fn events(&self) -> Option<StoreEvents> {
        self.inner.events()
    }
    fn acquire(&self, request: &AcquireRequest) -> Answer<Acquired> {
        match self.reach() {
            Ok(()) => self.inner.acquire(request),
            Err(cut) => Answer::ready(Err(cut)),
        }
    }
    async fn granted(&self, request: &AcquireRequest) -> Result<Grant, Error> {
        self.reach()?;
        self.inner.granted(request).await
    }
    async fn renew(&self, renewals: &[Renewal]) -> Result<Vec<Renewed>, Error> {
        self.reach()?;
        self.inner.renew(renewals).await
    }
    fn release(&self, claim: &Claim) -> Answer<Released> {
        match self.reach() {
            Ok(()) => self.inner.release(claim),
            Err(cut) => Answer::ready(Err(cut)),
        }
    }
    async fn inspect(&self, name: &LockName) -> Result<LockState, Error> {
        self.reach()?;
        self.inner.inspect(name).await
    }
    fn acquire_all(&self, requests: &[AcquireRequest]) -> Option<Answer<Vec<Acquired>>> {
        match self.reach() {
            Ok(()) => self.inner.acquire_all(requests),
            Err(cut) => Some(Answer::ready(Err(cut))),
        }
    }
    fn admin(&self) -> Option<&dyn Admin> {
        self.inner.admin()
    }
}
