//! One ZooKeeper session: its client, its claims, and its lifetime.
//!
//! An open connection proves nothing: a partitioned server continues to answer, and a deposed
//! leader continues to answer `sync`. Only a write that a majority has acknowledged counts, a
//! *beat*: the creation of a node, or a heartbeat, which is a transaction with a check and no
//! change. [`proof`](crate::proof) explains how long a beat proves that the servers keep the
//! session: more than the [longest lease](Session::longest_lease), if the client has sent a *pulse*
//! in time, a read from its server each eighth of a session timeout.
//!
//! # Requests in flight
//!
//! A server executes the requests of a session in their order. So a heartbeat, which renews all
//! locks of the session, waits for the requests before it. There may be thousands of acquires,
//! polls and releases. So at most [`MOST`] of each kind are under way at a
//! time, and the others [wait](dlock_core::session::SessionBase::see_through_in), first in, first
//! out. Many claims that arrive at once are thus sent in steps, each of which
//! [shares lists](crate::children).
//!
//! # Concurrency
//!
//! The session task sets `sleeping`, then reads the claims. A call adds its claim, then loads
//! `sleeping`. The mutex of the claims orders the two, so one of them sees the other.

use std::{
    ops::Deref,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use dlock_core::{
    AcquireRequest, Backoff, Clock, Error, Instant, LockName, StoreEventSender,
    session::SessionBase,
};
use parking_lot::Mutex;
use tokio::{
    runtime::Handle,
    sync::{Notify, Semaphore, watch},
};
use zookeeper_client::{Client, Error as ZkError};

use crate::{
    acl::Acl,
    children::Lists,
    claim::{OwnClaim, Spot},
    config::ZkConfig,
    connect::{Alive, Servers, connect, servers},
    error::{is_passing, is_unknown, no_answer},
    node::segment,
    proof::Proof,
    queue::Standing,
};

/// The number of requests of a kind that are under way at a time.
const MOST: usize = 256;

/// The time at which a shared heartbeat was sent, once it is answered.
pub(crate) type Beat = watch::Receiver<Option<Result<Instant, ZkError>>>;

/// One session.
pub(crate) struct Session {
    pub(crate) client: Client,
    pub(crate) alive: Alive,
    pub(crate) config: ZkConfig,
    /// The session's timeout, as negotiated.
    pub(crate) timeout: Duration,
    pub(crate) acl: Acl,
    pub(crate) servers: Servers,
    /// The epoch node to which the next creation writes, if it exists. Locked while it changes.
    pub(crate) epoch: tokio::sync::Mutex<Option<Arc<str>>>,
    base: SessionBase<OwnClaim>,
    pub(crate) proof: Proof,
    /// The shared heartbeat that has not been sent yet, if a caller waits for it.
    pub(crate) next_beat: Mutex<Option<Beat>>,
    pub(crate) lists: Arc<Lists>,
    /// The windows for acquires, for releases and for the requests of waiters: see above.
    pub(crate) acquires: Arc<Semaphore>,
    pub(crate) releases: Arc<Semaphore>,
    pub(crate) polls: Semaphore,
    rest: Arc<Rest>,
}

impl Session {
    /// Opens a session.
    pub(crate) async fn connect(
        config: &ZkConfig,
        events: StoreEventSender,
        runtime: Handle,
    ) -> Result<Arc<Self>, Error> {
        let mut began = Clock::Boot.now();
        let (mut client, mut alive) = connect(config, config.session_timeout, &runtime).await?;
        if client.session_timeout() < config.session_timeout {
            // The driver notices a dead server after a part of the timeout that it has requested.
            // So it has to request the timeout that the servers allow.
            began = Clock::Boot.now();
            (client, alive) = connect(config, client.session_timeout(), &runtime).await?;
        }
        Ok(Arc::new(Self {
            timeout: client.session_timeout(),
            servers: servers(&client).await?,
            acl: config.acl(),
            config: config.clone(),
            epoch: tokio::sync::Mutex::default(),
            proof: Proof::new(began, client.session_timeout()),
            next_beat: Mutex::default(),
            lists: Lists::new(client.clone(), runtime.clone()),
            base: SessionBase::new(began, events, runtime, client.session_timeout() / 3, no_answer),
            acquires: Arc::new(Semaphore::new(MOST)),
            releases: Arc::new(Semaphore::new(MOST)),
            polls: Semaphore::new(MOST),
            rest: Arc::default(),
            client,
            alive,
        }))
    }

    /// Returns the directory of a lock.
    pub(crate) fn dir(&self, name: &LockName) -> String {
        format!("{}/{}", self.root(), segment(name))
    }

    /// Returns the directory of the locks' directories. Empty if there is none.
    pub(crate) fn root(&self) -> &str {
        &self.config.root
    }

    /// Returns the longest lease. A beat proves more than that, if there was a pulse in time.
    pub(crate) fn longest_lease(&self) -> Duration {
        self.timeout / 2
    }

    /// Returns this client's claim, a new one if necessary, with its lease restarted.
    pub(crate) fn claim(&self, request: &AcquireRequest) -> Arc<OwnClaim> {
        let claim = self.claim_of(request, || OwnClaim::new(request));
        self.rest.wake();
        claim
    }

    /// Returns the notification for which the session task waits while there are no claims, or
    /// `None` if there are claims.
    pub(crate) fn rest(&self) -> Option<Arc<Rest>> {
        self.rest.sleeping.store(true, Ordering::SeqCst);
        if !self.has_claims() {
            return Some(Arc::clone(&self.rest));
        }
        self.rest.sleeping.store(false, Ordering::SeqCst);
        None
    }

    /// Records that a majority has acknowledged a write that was sent at `sent`.
    pub(crate) fn heard(&self, sent: Instant) {
        self.base.heard(sent);
        self.proof.beat(sent, Clock::Boot.now());
    }

    /// Returns the start of the lease of a claim that holds the lock since `at`. It is earlier if
    /// the servers may not keep the session for the whole lease.
    pub(crate) fn since(&self, at: Instant, lease: Duration) -> Instant {
        at.min(self.proof.until().saturating_sub(lease))
    }

    /// Sends a request until the outcome is certain, or the session has ended. Returns the answer,
    /// and whether the outcome of an earlier sending was unknown.
    pub(crate) async fn insist<T, F>(
        &self,
        mut send: impl FnMut() -> F,
    ) -> (Result<T, ZkError>, bool)
    where
        F: Future<Output = Result<T, ZkError>>,
    {
        let mut unsure = false;
        let mut pause = Backoff::new();
        loop {
            match self.answer(send()).await {
                Err(error) if is_passing(&error) && !self.is_over() => {
                    unsure |= is_unknown(&error);
                    pause.wait().await;
                }
                answer => return (answer, unsure),
            }
        }
    }

    /// Waits for the answer to a request. The timeout is needed because the driver may silently
    /// drop a request while it moves from one server to the next.
    pub(crate) async fn answer<T, E: From<ZkError>>(
        &self,
        request: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        let answer = tokio::time::timeout(self.timeout, request).await;
        answer.unwrap_or_else(|_| Err(ZkError::Timeout.into()))
    }

    /// Sends a request that changes nothing until it is answered.
    pub(crate) async fn read<T, F>(&self, send: impl FnMut() -> F) -> Result<T, ZkError>
    where
        F: Future<Output = Result<T, ZkError>>,
    {
        self.insist(send).await.0
    }

    /// Sends a waiter's request, which changes nothing, until it is answered.
    pub(crate) async fn poll<T, F>(&self, send: impl FnMut() -> F) -> Result<T, ZkError>
    where
        F: Future<Output = Result<T, ZkError>>,
    {
        // The semaphore is never closed.
        let _permit = self.polls.acquire().await;
        self.read(send).await
    }

    /// Returns the state of a waiting claim.
    pub(crate) async fn standing_of_waiter(&self, spot: &Spot) -> Result<Standing, ZkError> {
        let _permit = self.polls.acquire().await;
        self.standing(spot, None).await
    }
}

impl Deref for Session {
    type Target = SessionBase<OwnClaim>;

    fn deref(&self) -> &SessionBase<OwnClaim> {
        &self.base
    }
}

/// The sleep of the session task while there are no claims.
#[derive(Default)]
pub(crate) struct Rest {
    sleeping: AtomicBool,
    woken: Notify,
}

impl Rest {
    /// Wakes the session task if it sleeps, because a claim was added.
    fn wake(&self) {
        if self.sleeping.load(Ordering::SeqCst) && self.sleeping.swap(false, Ordering::SeqCst) {
            self.woken.notify_one();
        }
    }

    pub(crate) async fn until_woken(&self) {
        self.woken.notified().await;
    }
}
