//! One session: its lease, its claims, and its lifetime.
//!
//! One lease serves all claims of a process, so that a heartbeat renews them all. `beat.rs` explains
//! which answers prove that the servers keep it, and `lease.rs` why there is a new one after each
//! election. A session whose local deadline has passed is over for good, and answers that come later
//! count for nothing: a lease that was found ended may be revoked later than it is renewed.
//!
//! # Concurrency
//!
//! - A beat is recorded only before the deadline of the beat before it: `prove` holds `proof`.
//! - `lease.rs` explains how the lease changes.
//! - `link` is `None` while another member is dialled. Calls notice each change, and give up.

use std::{
    ops::Deref,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64},
    },
    time::Duration,
};

use dlock_core::{
    AcquireRequest, Certainty, Clock, Error, Instant, StoreEventSender,
    session::{Pause, SessionBase},
};
use parking_lot::Mutex;
use tokio::{
    runtime::Handle,
    sync::{Semaphore, watch},
};

use crate::{
    beat::Proof,
    calls::is_passing,
    client::{Bytes, Failure, FailureKind, PutRequest},
    config::EtcdConfig,
    error::no_answer,
    gather::Gather,
    key::Keys,
    link::{Link, vote},
    own::OwnClaim,
    places::Places,
};

/// The number of requests of a kind that are under way at a time, so that votes are not late.
const MOST: usize = 512;

/// One session.
pub(crate) struct Session {
    pub(crate) keys: Keys,
    /// Its first lease, by which it is known.
    pub(crate) id: i64,
    /// The current lease. The minder revokes it when the session was dropped.
    pub(crate) lease: Arc<AtomicI64>,
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
    places: Arc<Places>,
    pub(crate) proof: Mutex<Proof>,
    pub(crate) beating: tokio::sync::Mutex<()>,
    /// The largest revision that an answer has shown.
    pub(crate) seen: AtomicI64,
    pub(crate) acquires: Arc<Semaphore>,
    pub(crate) releases: Arc<Semaphore>,
    pub(crate) polls: Semaphore,
    pub(crate) gather: Gather,
}

impl Session {
    /// Opens a session.
    pub(crate) async fn open(
        config: &EtcdConfig,
        events: StoreEventSender,
        runtime: Handle,
    ) -> Result<Arc<Self>, Error> {
        let patience = config.session_timeout / 3;
        let link = Link::open(config, None, patience).await?;
        let keys = Keys::below(&config.root);
        let granted = link.grant(config.session_timeout, patience).await?;
        let (id, ttl, term) = (granted.id, granted.ttl, link.term);
        let marker = Bytes::from(keys.marker(id));
        let put = PutRequest { key: marker.clone(), lease: id, ..Default::default() };
        let deadline = tokio::time::Instant::now() + patience;
        let (header, _) = link.client.call(put, deadline).await?;
        Ok(Arc::new(Self {
            keys,
            id,
            lease: Arc::new(AtomicI64::new(id)),
            ttl,
            cluster: link.cluster,
            marker,
            link: watch::Sender::new(Some(Arc::new(link))),
            is_member_suspect: AtomicBool::new(false),
            epoch: AtomicI64::new(header.revision),
            raising: tokio::sync::Mutex::default(),
            base: SessionBase::new(granted.began, events, runtime, ttl / 3, no_answer),
            places: Arc::default(),
            proof: Mutex::new(Proof::of(term)),
            beating: tokio::sync::Mutex::default(),
            seen: AtomicI64::new(header.revision),
            acquires: Arc::new(Semaphore::new(MOST)),
            releases: Arc::new(Semaphore::new(MOST)),
            polls: Semaphore::new(MOST),
            gather: Gather::new(),
        }))
    }

    /// Returns the longest lease: two thirds of the TTL. The rest is for heartbeats.
    pub(crate) fn longest_lease(&self) -> Duration {
        self.ttl * 2 / 3
    }

    /// Returns the time between heartbeats, after which an answer is late, too.
    pub(crate) fn rhythm(&self) -> Duration {
        self.ttl / 6
    }

    /// Returns this client's claim, a new one if necessary, with its lease restarted.
    pub(crate) fn claim(&self, request: &AcquireRequest) -> Arc<OwnClaim> {
        self.claim_of(request, || OwnClaim::new(request, &self.keys, self.id, &self.places))
    }

    /// Returns the local deadline: until then the servers keep the lease. The margin is for clocks
    /// that drift apart by 2 %.
    pub(crate) fn lapses(&self) -> Instant {
        self.beat().saturating_add(self.ttl - self.ttl / 50)
    }

    /// Returns the start of a lease that is granted `at` this time. It is earlier if the last beat
    /// would not cover the whole lease. `None` if the session is over.
    pub(crate) fn since(&self, at: Instant, lease: Duration) -> Option<Instant> {
        self.is_alive().then(|| at.min(self.lapses().saturating_sub(lease)))
    }

    /// Returns whether the servers keep the lease for certain. If the local deadline has passed, the
    /// session ends.
    pub(crate) fn is_alive(&self) -> bool {
        if Clock::Boot.now() >= self.lapses() {
            self.end();
        }
        !self.is_over()
    }

    /// Returns whether a lease that begins now is covered by a beat.
    pub(crate) fn is_covered(&self, lease: Duration) -> bool {
        let lease = lease.min(self.longest_lease());
        self.lapses() >= Clock::Boot.now().saturating_add(lease)
    }

    /// Sends heartbeats until a lease that begins now is covered by a beat, for as long as a caller
    /// waits. Callers share them.
    pub(crate) async fn cover(self: &Arc<Self>, lease: Duration) -> Result<(), Error> {
        let covering = async {
            let mut pause = Pause::new();
            while !self.is_covered(lease) {
                let turn = self.beating.lock().await;
                let beaten = match self.is_covered(lease) {
                    false => self.heartbeat_alone().await,
                    true => Ok(()),
                };
                drop(turn);
                match beaten {
                    Err(failure) if is_passing(&failure) && self.is_alive() => pause.wait().await,
                    beaten => beaten?,
                }
            }
            Ok(())
        };
        let covered = tokio::time::timeout(self.patience(), covering).await;
        covered.unwrap_or_else(|_| Err(no_answer()))
    }

    /// Renews the lease and proves it, or continues with a new one if there was an election.
    pub(crate) async fn heartbeat(self: &Arc<Self>) -> Result<(), Failure> {
        let _turn = self.beating.lock().await;
        self.heartbeat_alone().await
    }

    async fn heartbeat_alone(self: &Arc<Self>) -> Result<(), Failure> {
        let late = || tokio::time::Instant::now() + self.rhythm();
        for _ in 0..3 {
            let sent = Clock::Boot.now();
            let asked = self.on_link(async |link| {
                let (header, _) = link.client.keep(self.lease(), late()).await?;
                let (term, answered) = (header.raft_term, Clock::Boot.now());
                let counts = self.proof.lock().asked(link.number, term, sent, answered);
                Ok((!counts).then_some(term))
            });
            match asked.await {
                Err(failure) if failure.kind() == FailureKind::LeaseNotFound => {
                    return Err(self.doubt(failure).await?);
                }
                Ok(Some(later)) => Box::pin(self.change_lease(later)).await?,
                asked => drop(asked?),
            }
            for _ in 0..2 {
                // Under load, the answers of other requests are votes.
                if self.beat() < sent {
                    self.voted_by(vote(&self.keys), self.rhythm(), true).await?;
                }
            }
            if self.beat() >= sent {
                return Ok(());
            }
            if !self.is_alive() {
                break;
            }
        }
        let why = "the members elect leaders, so that no heartbeat counts";
        Err(Failure::new(FailureKind::NoLeader, Certainty::NotApplied, why))
    }

    /// Acts on a keepalive whose lease is said not to exist. That proves as little as another answer:
    /// a leader that was replaced does not know the leases that were granted since. A majority knows
    /// the marker of the session as long as the lease lives. If it is gone, the session ends.
    async fn doubt(&self, failure: Failure) -> Result<Failure, Failure> {
        if !self.check_marker().await? {
            return Ok(failure);
        }
        let why = "a member does not know the lease, but a majority does";
        Ok(Failure::new(FailureKind::NoLeader, Certainty::NotApplied, why))
    }

    /// Asks a majority whether the marker exists, and ends the session if not: also if the epoch was
    /// ended by deleting it, since then nobody knows. Some versions answer such a read with an old
    /// state after a pause. If that has the marker, the session lasts until its heartbeats no longer
    /// count; if it is older than the marker, the session ends without need, which harms no lock of
    /// others.
    pub(crate) async fn check_marker(&self) -> Result<bool, Failure> {
        let (_, read) = self.ask(self.read_marker()).await?;
        let exists = !read.kvs.is_empty();
        if !exists {
            self.end();
        }
        Ok(exists)
    }
}

impl Deref for Session {
    type Target = SessionBase<OwnClaim>;

    fn deref(&self) -> &SessionBase<OwnClaim> {
        &self.base
    }
}
