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
        atomic::{AtomicBool, AtomicI64},
    },
    time::Duration,
};

use dlock_core::{AcquireRequest, Clock, Error, Instant, StoreEventSender, session::SessionBase};
use parking_lot::Mutex;
use tokio::{
    runtime::Handle,
    sync::{Semaphore, watch},
};

use crate::{
    batch_queue::BatchQueue,
    claim::OwnClaim,
    client::{Bytes, PutRequest},
    config::EtcdConfig,
    error::no_answer,
    key::Keys,
    key_slots::KeySlots,
    link::Link,
    proof::Proof,
};

/// The number of requests of a kind that are under way at a time, so that votes are not late.
const MOST: usize = 512;

/// One session.
pub(crate) struct Session {
    pub(crate) keys: Keys,
    /// Its first lease, by which it is known.
    pub(crate) id: i64,
    /// The current lease. The session task revokes it when the session was dropped.
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
    pub(crate) async fn open(
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

impl Deref for Session {
    type Target = SessionBase<OwnClaim>;

    fn deref(&self) -> &SessionBase<OwnClaim> {
        &self.base
    }
}
