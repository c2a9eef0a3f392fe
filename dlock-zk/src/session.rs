//! One ZooKeeper session: its client, its claims, and its lifetime.
//!
//! An open connection proves nothing: a partitioned server continues to answer, and a deposed
//! leader continues to answer `sync`. Only a write that a majority has acknowledged counts, a *beat*:
//! the creation of a node, or a heartbeat, which is a transaction with a check and no change.
//! [`proof`](crate::proof) explains how long a beat proves that the servers keep the session: more
//! than the [longest lease](Session::longest_lease), if the client has sent a *pulse* in time, a read
//! from its server each eighth of a session timeout.
//!
//! # Concurrency
//!
//! - `places` changes under its mutex. `end` sets `over`, then takes all places out. The servers refuse
//!   the requests of a claim that enters later.
//! - `next_end` is at or before the end of every lease. A call writes its end in the place, then
//!   lowers `next_end`; `lapse` sets that to the maximum, then reads all places. As both orders are
//!   sequentially consistent, `lapse` reads the new end, or the call lowers `next_end` after it.
//! - `sleeping`: the minder sets it, then reads the places. A call adds its place, then loads it.
//!   The mutex of the places orders the two, so one of them sees the other.
//! - `beat` only grows (`fetch_max`), since answers come in any order.

use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use dlock_core::{
    AcquireRequest, ClaimId, Clock, Error, Format, Instant, LockName, StoreEvent, StoreEventSender,
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
    config::ZkConfig,
    connect::{Servers, connect, servers},
    error::{is_passing, is_unknown, no_answer},
    node::segment,
    place::Place,
    proof::Proof,
};

/// How long the node of a granted claim is not watched. A watch costs a request, and most claims
/// are released before.
const BRIEF: Duration = Duration::from_secs(1);

/// The number of requests of a kind that are under way at a time.
pub(crate) const MOST: usize = 256;

/// The time at which a shared heartbeat was sent, once it is answered.
pub(crate) type Beat = watch::Receiver<Option<Result<Instant, ZkError>>>;

/// One session.
pub(crate) struct Session {
    pub(crate) client: Client,
    /// The session's timeout, as negotiated.
    pub(crate) timeout: Duration,
    pub(crate) acl: Acl,
    root: String,
    /// The format in which nodes are written.
    format: Format,
    pub(crate) servers: Servers,
    /// The epoch node to which the next creation writes, if it exists. Locked while it changes.
    pub(crate) epoch: tokio::sync::Mutex<Option<Arc<str>>>,
    places: Mutex<HashMap<ClaimId, Arc<Place>>>,
    /// No lease ends before this time.
    next_end: AtomicU64,
    /// Claims that were granted a short while ago, with the time of the grant, in that order.
    fresh: Mutex<VecDeque<(Instant, Arc<Place>)>>,
    beat: AtomicU64,
    pub(crate) proof: Proof,
    /// The shared heartbeat that has not been sent yet, if a caller waits for it.
    pub(crate) next_beat: Mutex<Option<Beat>>,
    pub(crate) lists: Arc<Lists>,
    /// The windows for acquires, for releases and for the requests of waiters: see
    /// [`window`](crate::window).
    pub(crate) acquires: Arc<Semaphore>,
    pub(crate) releases: Arc<Semaphore>,
    pub(crate) polls: Semaphore,
    over: AtomicBool,
    ending: Notify,
    rest: Arc<Rest>,
    events: StoreEventSender,
    /// The runtime on which requests run to their end.
    runtime: Handle,
}

impl Session {
    /// Opens a session.
    pub(crate) async fn open(
        config: &ZkConfig,
        events: StoreEventSender,
        runtime: Handle,
    ) -> Result<Arc<Self>, Error> {
        let mut began = Clock::Boot.now();
        let mut client = connect(config, config.session_timeout).await?;
        if client.session_timeout() < config.session_timeout {
            // The driver notices a dead server after a part of the timeout that it has requested.
            // So it has to request the timeout that the servers allow.
            began = Clock::Boot.now();
            client = connect(config, client.session_timeout()).await?;
        }
        Ok(Arc::new(Self {
            timeout: client.session_timeout(),
            servers: servers(&client).await?,
            acl: config.acl(),
            root: config.root.clone(),
            format: config.format,
            epoch: tokio::sync::Mutex::default(),
            places: Mutex::default(),
            next_end: AtomicU64::new(u64::MAX),
            fresh: Mutex::default(),
            beat: AtomicU64::new(began.as_nanos()),
            proof: Proof::new(began, client.session_timeout()),
            next_beat: Mutex::default(),
            lists: Lists::new(client.clone(), runtime.clone()),
            acquires: Arc::new(Semaphore::new(MOST)),
            releases: Arc::new(Semaphore::new(MOST)),
            polls: Semaphore::new(MOST),
            over: AtomicBool::new(false),
            ending: Notify::new(),
            rest: Arc::default(),
            events,
            client,
            runtime,
        }))
    }

    /// Returns the directory of a lock.
    pub(crate) fn dir(&self, name: &LockName) -> String {
        format!("{}/{}", self.root, segment(name))
    }

    /// Returns the directory of the locks' directories. Empty if there is none.
    pub(crate) fn root(&self) -> &str {
        &self.root
    }

    /// Returns the longest lease. A beat proves more than that, if there was a pulse in time.
    pub(crate) fn longest_lease(&self) -> Duration {
        self.timeout / 2
    }

    /// Returns how long a caller waits for an answer. After that, the request continues in the
    /// background.
    pub(crate) fn patience(&self) -> Duration {
        self.timeout / 3
    }

    // --- claims ---

    /// Returns the claim's place, a new one if necessary, with its lease restarted.
    pub(crate) fn place(&self, request: &AcquireRequest) -> Arc<Place> {
        let mut places = self.places.lock();
        let new = || Arc::new(Place::new(request, self.format));
        let place = Arc::clone(places.entry(request.claim).or_insert_with(new));
        drop(places);
        self.touch(&place, request.lease);
        self.rest.stir();
        place
    }

    /// Restarts a claim's lease, from now on.
    pub(crate) fn touch(&self, place: &Place, lease: Duration) {
        self.may_end(place.touch(lease));
    }

    /// Records that a lease may end at this time: `lapse` must not miss it.
    pub(crate) fn may_end(&self, until: Instant) {
        if until.as_nanos() < self.next_end.load(Ordering::SeqCst) {
            self.next_end.fetch_min(until.as_nanos(), Ordering::SeqCst);
        }
    }

    pub(crate) fn find(&self, claim: ClaimId) -> Option<Arc<Place>> {
        self.places.lock().get(&claim).cloned()
    }

    /// Returns the places of these claims.
    pub(crate) fn places_of(
        &self,
        claims: impl Iterator<Item = ClaimId>,
    ) -> Vec<Option<Arc<Place>>> {
        let places = self.places.lock();
        claims.map(|claim| places.get(&claim).cloned()).collect()
    }

    /// Removes a claim from the places, if the place is still this one.
    pub(crate) fn forget(&self, place: &Arc<Place>) {
        place.lose();
        let mut places = self.places.lock();
        if places.get(&place.claim).is_some_and(|known| Arc::ptr_eq(known, place)) {
            places.remove(&place.claim);
        }
    }

    /// Removes a claim whose node is deleted, or will be, and sends the event of a loss.
    pub(crate) fn lose(&self, place: &Arc<Place>) {
        if place.lose() {
            self.tell(place);
        }
        self.forget(place);
    }

    /// Sends the event of a loss. There may be no receiver.
    fn tell(&self, place: &Place) {
        self.events.send(StoreEvent::Ended(place.claim));
    }

    /// Records a grant. The node will be watched if the claim is held for longer than [`BRIEF`].
    pub(crate) fn granted(&self, place: &Arc<Place>) {
        self.fresh.lock().push_back((Clock::Boot.now(), Arc::clone(place)));
    }

    /// Returns the claims that were granted [`BRIEF`] ago or earlier. Each is returned once.
    pub(crate) fn take_matured(&self, now: Instant) -> Vec<Arc<Place>> {
        let mut fresh = self.fresh.lock();
        let matured = fresh.partition_point(|(granted, _)| now.since(*granted) >= BRIEF);
        fresh.drain(..matured).map(|(_, place)| place).collect()
    }

    /// Ends the claims whose lease has ended. Returns them, and the time until the next lease may
    /// end. They stay in the places until their nodes are deleted.
    pub(crate) fn lapse(&self, now: Instant) -> (Vec<Arc<Place>>, Option<Duration>) {
        let mut lapsed = Vec::new();
        let places = self.places.lock();
        let known = Instant::from_nanos(self.next_end.load(Ordering::SeqCst));
        if now < known {
            // There may be 100,000 places, and most leases are renewed long before they end.
            return (lapsed, (!places.is_empty()).then(|| known.since(now)));
        }
        // A place that is touched from here on is seen by the loop, or lowers this value itself.
        self.next_end.store(u64::MAX, Ordering::SeqCst);
        let mut next = None;
        for place in places.values() {
            if let Some(granted) = place.lapse(now) {
                lapsed.push(Arc::clone(place));
                if granted {
                    self.tell(place);
                }
            } else if !place.is_over() {
                let remaining = place.remaining(now);
                next = Some(next.map_or(remaining, |next: Duration| next.min(remaining)));
            }
        }
        if let Some(next) = next {
            self.next_end.fetch_min(now.saturating_add(next).as_nanos(), Ordering::SeqCst);
        }
        (lapsed, next)
    }

    /// Returns the notification for which the minder waits while there are no places, or `None` if
    /// there are places.
    pub(crate) fn rest(&self) -> Option<Arc<Rest>> {
        self.rest.sleeping.store(true, Ordering::SeqCst);
        if self.places.lock().is_empty() {
            return Some(Arc::clone(&self.rest));
        }
        self.rest.sleeping.store(false, Ordering::SeqCst);
        None
    }

    // --- its lifetime ---

    /// Records that a majority has acknowledged a write that was sent at `sent`.
    pub(crate) fn heard(&self, sent: Instant) {
        self.beat.fetch_max(sent.as_nanos(), Ordering::AcqRel);
        self.proof.beat(sent, Clock::Boot.now());
    }

    /// Returns the time at which the last write was sent that a majority has acknowledged.
    pub(crate) fn beat(&self) -> Instant {
        Instant::from_nanos(self.beat.load(Ordering::Acquire))
    }

    /// Returns the start of the lease of a claim that holds the lock since `at`. It is earlier if
    /// the servers may not keep the session for the whole lease.
    pub(crate) fn since(&self, at: Instant, lease: Duration) -> Instant {
        at.min(self.proof.until().saturating_sub(lease))
    }

    /// Returns whether it has ended.
    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }

    /// Waits until it ends.
    pub(crate) async fn until_over(&self) {
        let mut ending = std::pin::pin!(self.ending.notified());
        ending.as_mut().enable();
        if !self.is_over() {
            ending.await;
        }
    }

    /// Waits for the answer for [`patience`](Self::patience). After that, or if the caller stops
    /// waiting, the work continues in the background: it is never dropped half-way.
    pub(crate) async fn see_through<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> Result<T, Error> {
        let (runtime, patience) = (self.runtime.clone(), self.patience());
        // On the runtime of the session, timers included, since the caller's runtime may end.
        let seen = self.runtime.spawn(async move {
            let mut work = Box::pin(work);
            match tokio::time::timeout(patience, &mut work).await {
                Ok(answer) => answer,
                Err(_) => {
                    runtime.spawn(work);
                    Err(no_answer())
                }
            }
        });
        seen.await.unwrap_or_else(|_| Err(no_answer()))
    }

    /// Runs work in the background.
    pub(crate) fn background(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.runtime.spawn(work);
    }

    /// Ends the session, and all its claims with it.
    pub(crate) fn end(&self) {
        self.over.store(true, Ordering::SeqCst);
        let places: Vec<_> = self.places.lock().drain().map(|(_, place)| place).collect();
        for place in places {
            self.lose(&place);
        }
        self.ending.notify_waiters();
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
        let mut pause = Duration::from_millis(5);
        loop {
            match self.answer(send()).await {
                Err(error) if is_passing(&error) && !self.is_over() => {
                    unsure |= is_unknown(&error);
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(Duration::from_millis(500));
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
}

/// The sleep of the minder.
#[derive(Default)]
pub(crate) struct Rest {
    sleeping: AtomicBool,
    stirred: Notify,
}

impl Rest {
    /// Wakes the minder if it sleeps, because a place was added.
    fn stir(&self) {
        if self.sleeping.load(Ordering::SeqCst) && self.sleeping.swap(false, Ordering::SeqCst) {
            self.stirred.notify_one();
        }
    }

    pub(crate) async fn until_stirred(&self) {
        self.stirred.notified().await;
    }
}
