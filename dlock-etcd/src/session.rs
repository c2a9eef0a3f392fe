//! One session: its lease, its claims, and its lifetime.
//!
//! One lease serves all claims of a process, so that a heartbeat renews them all. `proof.rs` explains
//! which answers prove that the servers keep it, and `lease.rs` why there is a new one after each
//! election. A session whose local deadline has passed is over for good, and answers that come later
//! count for nothing: a lease that was found ended may be revoked later than it is renewed.
//!
//! # Concurrency
//!
//! - A beat is recorded only before the deadline of the beat before it: `count_vote` holds `proof`.
//! - `lease.rs` explains how the lease changes.
//! - `link` is `None` while another member is dialled. Calls notice each change, and give up.

use std::{
    ops::Deref,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, Ordering},
    },
    time::Duration,
};

use dlock_core::{
    AcquireRequest, Backoff, Certainty, Clock, Error, Instant, StoreEventSender,
    session::SessionBase,
};
use parking_lot::Mutex;
use tokio::{
    runtime::Handle,
    sync::{Semaphore, watch},
};

use crate::{
    batch_queue::BatchQueue,
    claim::OwnClaim,
    client::{Bytes, Failure, FailureKind, Header, PutRequest, Unary},
    config::EtcdConfig,
    connect::Link,
    error::no_answer,
    key::{KeySlots, Keys},
    proof::Proof,
};

/// The number of requests of a kind that are under way at a time, so that votes are not late.
const MOST: usize = 512;

/// One session.
pub(crate) struct Session {
    pub(crate) config: EtcdConfig,
    pub(crate) keys: Keys,
    /// Its first lease, by which it is known.
    pub(crate) id: i64,
    /// The current lease.
    pub(crate) lease: Arc<AtomicI64>,
    /// The leases before it that may not be over, also of former sessions. Each may still have keys.
    pub(crate) earlier_leases: Arc<Mutex<Vec<i64>>>,
    /// The TTL of a lease, as granted.
    pub(crate) ttl: Duration,
    pub(crate) cluster: u64,
    pub(crate) marker: Bytes,
    pub(crate) link: watch::Sender<Option<Arc<Link>>>,
    /// Whether an answer of the connected member calls for a heartbeat before the next one is due.
    pub(crate) is_member_suspect: AtomicBool,
    /// See `epoch.rs`.
    pub(crate) epoch: AtomicI64,
    pub(crate) raising: tokio::sync::Mutex<()>,
    base: SessionBase<OwnClaim>,
    slots: Arc<KeySlots>,
    pub(crate) proof: Mutex<Proof>,
    pub(crate) beating: tokio::sync::Mutex<()>,
    /// The largest revision that an answer has shown.
    pub(crate) seen: AtomicI64,
    pub(crate) acquires: Arc<Semaphore>,
    pub(crate) releases: Arc<Semaphore>,
    pub(crate) polls: Semaphore,
    pub(crate) batch_queue: BatchQueue,
}

impl Session {
    /// Opens a session.
    pub(crate) async fn connect(
        config: &EtcdConfig,
        events: StoreEventSender,
        runtime: Handle,
    ) -> Result<Arc<Self>, Error> {
        let response_timeout = config.session_timeout / 3;
        let link = Link::open(config, None, response_timeout).await?;
        let keys = Keys::below(&config.root);
        let granted = link.grant(config.session_timeout, response_timeout).await?;
        let (id, ttl, term) = (granted.id, granted.ttl, link.term);
        let marker = Bytes::from(keys.marker(id));
        let put = PutRequest { key: marker.clone(), lease: id, ..Default::default() };
        let deadline = tokio::time::Instant::now() + response_timeout;
        let (header, _) = link.client.call(put, deadline).await?;
        Ok(Arc::new(Self {
            config: config.clone(),
            keys,
            id,
            lease: Arc::new(AtomicI64::new(id)),
            earlier_leases: Arc::default(),
            ttl,
            cluster: link.cluster,
            marker,
            link: watch::Sender::new(Some(Arc::new(link))),
            is_member_suspect: AtomicBool::new(false),
            epoch: AtomicI64::new(header.revision),
            raising: tokio::sync::Mutex::default(),
            base: SessionBase::new(granted.began, events, runtime, ttl / 3, no_answer),
            slots: Arc::default(),
            proof: Mutex::new(Proof::of(term)),
            beating: tokio::sync::Mutex::default(),
            seen: AtomicI64::new(header.revision),
            acquires: Arc::new(Semaphore::new(MOST)),
            releases: Arc::new(Semaphore::new(MOST)),
            polls: Semaphore::new(MOST),
            batch_queue: BatchQueue::new(),
        }))
    }

    /// Returns the longest lease: two thirds of the TTL. The rest is for heartbeats.
    pub(crate) fn longest_lease(&self) -> Duration {
        self.ttl * 2 / 3
    }

    /// Returns the time between heartbeats, after which an answer is late, too.
    pub(crate) fn heartbeat_interval(&self) -> Duration {
        self.ttl / 6
    }

    /// Returns this client's claim, a new one if necessary, with its lease restarted.
    pub(crate) fn claim(&self, request: &AcquireRequest) -> Arc<OwnClaim> {
        self.claim_of(request, || OwnClaim::new(request, &self.keys, self.id, &self.slots))
    }

    /// Returns the local deadline: until then the servers keep the lease. The margin is for clocks
    /// that drift apart by 2 %.
    pub(crate) fn local_deadline(&self) -> Instant {
        self.beat().saturating_add(self.ttl - self.ttl / 50)
    }

    /// Returns the start of a lease that is granted `at` this time. It is earlier if the last beat
    /// would not cover the whole lease. `None` if the session is over.
    pub(crate) fn since(&self, at: Instant, lease: Duration) -> Option<Instant> {
        self.is_alive().then(|| at.min(self.local_deadline().saturating_sub(lease)))
    }

    /// Returns whether the servers keep the lease for certain. If the local deadline has passed, the
    /// session ends.
    pub(crate) fn is_alive(&self) -> bool {
        if Clock::Boot.now() >= self.local_deadline() {
            self.end();
        }
        !self.is_over()
    }

    /// Returns whether a lease that begins now is proven by a beat.
    pub(crate) fn is_proven(&self, lease: Duration) -> bool {
        let lease = lease.min(self.longest_lease());
        self.local_deadline() >= Clock::Boot.now().saturating_add(lease)
    }
}

/// Requests, on the connection to one member.
impl Session {
    /// Replaces the connection. `None` makes all calls fail that use the old one.
    pub(crate) fn set_link(&self, link: Option<Arc<Link>>) {
        self.link.send_replace(link);
    }

    /// Returns the connection, or waits for the next one.
    pub(crate) async fn link(&self) -> Result<Arc<Link>, Failure> {
        if let Some(link) = self.link.borrow().clone() {
            return Ok(link);
        }
        let mut links = self.link.subscribe();
        let link = async {
            tokio::select! {
                link = links.wait_for(Option::is_some) => link.ok().and_then(|link| link.clone()),
                () = self.until_over() => None,
            }
        };
        let link = tokio::time::timeout(self.response_timeout(), link).await;
        link.ok().flatten().ok_or_else(|| {
            let why = "no member can be reached, or the session has ended";
            Failure::new(FailureKind::Disconnected, Certainty::NotApplied, why)
        })
    }

    /// Waits for an answer on the current connection, until that is given up.
    pub(crate) async fn on_link<T>(
        &self,
        call: impl AsyncFnOnce(&Link) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let link = self.link().await?;
        tokio::select! {
            answer = call(&link) => answer,
            () = replaced(self.link.subscribe(), link.number) => {
                let why = "the connection to a member that does not answer was given up";
                Err(Failure::new(FailureKind::Disconnected, Certainty::Unknown, why))
            }
        }
    }

    /// Sends a request that is no vote.
    pub(crate) async fn ask<R: Unary>(&self, request: R) -> Result<(Header, R::Response), Failure> {
        let deadline = tokio::time::Instant::now() + self.response_timeout();
        let answer = self.on_link(async |link| link.client.call(request, deadline).await).await;
        self.note(answer)
    }

    /// Sends a request that a majority commits before it is answered. If it has a lease, that is the
    /// current one of the session or an earlier one. If that has ended, the marker shows whether the
    /// session has ended with it.
    pub(crate) async fn voted<R: Unary>(
        &self,
        request: R,
    ) -> Result<(Header, R::Response), Failure> {
        self.voted_by(request, self.response_timeout(), false).await
    }

    /// Like [`voted`](Self::voted), with another limit of time. `is_first`: it does not wait for
    /// other requests if the server allows few at a time.
    pub(crate) async fn voted_by<R: Unary>(
        &self,
        request: R,
        within: Duration,
        is_first: bool,
    ) -> Result<(Header, R::Response), Failure> {
        let deadline = tokio::time::Instant::now() + within;
        let answer = self.on_link(async |link| {
            let sent = Clock::Boot.now();
            let answer = match is_first {
                true => link.client.call_first(request, deadline).await?,
                false => link.client.call(request, deadline).await?,
            };
            self.count_vote(link.number, answer.0.raft_term, sent);
            Ok(answer)
        });
        let answer = self.note(answer.await);
        if answer.as_ref().is_err_and(|failure| failure.kind() == FailureKind::LeaseNotFound) {
            // If this fails, the next request or heartbeat finds out.
            let _ = Box::pin(self.check_marker()).await;
        }
        answer
    }

    /// Records a vote. A beat counts only if the session is not over by then.
    fn count_vote(&self, link: u64, term: u64, sent: Instant) {
        let mut proof = self.proof.lock();
        let now = Clock::Boot.now();
        if let Some(beat) = proof.vote(link, term, sent, now)
            && now < self.local_deadline()
        {
            self.heard(beat);
        }
    }

    /// Notes what an answer shows beside its content.
    fn note<T>(&self, answer: Result<(Header, T), Failure>) -> Result<(Header, T), Failure> {
        match answer {
            Ok((header, answer)) => {
                self.seen.fetch_max(header.revision, Ordering::SeqCst);
                Ok((header, answer))
            }
            // The same login was accepted when the session began.
            Err(failure) if failure.kind() == FailureKind::WrongUser => {
                Err(failure.with_kind(FailureKind::Token))
            }
            Err(failure) => {
                if matches!(failure.kind(), FailureKind::Disconnected | FailureKind::Unclear) {
                    // The member may have been stopped or removed. The next heartbeat finds out.
                    self.is_member_suspect.store(true, Ordering::SeqCst);
                }
                Err(failure)
            }
        }
    }

    /// Returns the largest revision that an answer has shown, from any member.
    pub(crate) fn seen(&self) -> i64 {
        self.seen.load(Ordering::SeqCst)
    }

    /// Sends a request until the outcome is certain, or the session has ended. An error that is not
    /// known is no outcome: another member may answer. Returns the answer, and whether the outcome of
    /// an earlier sending was unknown.
    pub(crate) async fn insist<R: Unary>(
        &self,
        request: R,
    ) -> (Result<(Header, R::Response), Failure>, bool) {
        self.insist_by(|| self.voted(request.clone())).await
    }

    /// Like [`insist`](Self::insist), with this way of sending it.
    pub(crate) async fn insist_by<T, F>(
        &self,
        mut send: impl FnMut() -> F,
    ) -> (Result<T, Failure>, bool)
    where
        F: Future<Output = Result<T, Failure>>,
    {
        let (mut unsure, mut pause) = (false, Backoff::new());
        loop {
            match send().await {
                #[cfg(dlock_sim)]
                Err(failure)
                    if failure.to_string().contains("raft: stopped")
                        && dlock_core::sim::has_mistake("unknown-ends-session") =>
                {
                    self.end();
                    return (Err(failure), unsure);
                }
                Err(failure) if may_pass(&failure) && !self.is_over() => {
                    unsure |= failure.certainty() == Certainty::Unknown;
                    pause.wait().await;
                }
                answer => return (answer, unsure),
            }
        }
    }

    /// Sends a request that changes nothing until it is answered, for as long as a caller waits.
    pub(crate) async fn insist_on<R: Unary>(
        &self,
        request: R,
    ) -> Result<(Header, R::Response), Error> {
        let mut pause = Backoff::new();
        let answer = async {
            loop {
                match self.ask(request.clone()).await {
                    Err(failure) if is_passing(&failure) && !self.is_over() => pause.wait().await,
                    answer => return answer,
                }
            }
        };
        match tokio::time::timeout(self.response_timeout(), answer).await {
            Ok(answer) => Ok(answer?),
            Err(_) => Err(no_answer()),
        }
    }
}

impl Deref for Session {
    type Target = SessionBase<OwnClaim>;

    fn deref(&self) -> &SessionBase<OwnClaim> {
        &self.base
    }
}

/// Waits until the session has given up the connection with this number.
pub(crate) async fn replaced(mut links: watch::Receiver<Option<Arc<Link>>>, number: u64) {
    let other = |now: &Option<Arc<Link>>| now.as_ref().is_none_or(|now| now.number != number);
    // An error means that the session was dropped.
    let _ = links.wait_for(other).await;
}

fn may_pass(failure: &Failure) -> bool {
    is_passing(failure) || failure.kind() == FailureKind::Unclear
}

/// Returns whether a retry within the same session may help.
pub(crate) fn is_passing(failure: &Failure) -> bool {
    use FailureKind::{Disconnected, Late, Learner, NoLeader, Overloaded, Token};
    matches!(failure.kind(), Disconnected | Late | Learner | NoLeader | Overloaded | Token)
}
