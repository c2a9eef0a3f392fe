//! One ZooKeeper session: its client, the claims it keeps, and what is known of its life.
//!
//! That the connection is up proves nothing: a server that is cut off from its leader goes on
//! answering, and a leader that was deposed goes on answering `sync`. What counts is the last
//! write that a majority has acknowledged, a *beat*: a claim's node, or a heartbeat, which is a
//! transaction that checks something and changes nothing. Its leader has heard of this session
//! within the quarter of a session timeout before it: the client pings about every tenth of one,
//! and a follower reports its sessions every half tick, of which a session timeout has two or
//! more. A leader that comes later gives every session its whole timeout. So the session lives for
//! longer than half a session timeout from a beat, and that is how long a holder believes: see
//! [`Session::longest_lease`].
//!
//! # Concurrency
//!
//! - `places` changes under its mutex. `end` sets `over`, then takes all places out. The servers refuse
//!   the requests of a claim that enters later.
//! - `next_end` is at or before the end of every lease. A call writes its end in the place, then
//!   lowers `next_end`; `lapse` sets that to the maximum, then reads all places. As both orders are
//!   sequentially consistent, `lapse` reads the new end, or the call lowers `next_end` after it.
//! - `sleeping`: the minder sets it, then looks at the places. A call adds its place, then loads it.
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
};

/// For how long nobody watches the node of a claim that is granted: to watch is a request, and most
/// claims are given back before.
const BRIEF: Duration = Duration::from_secs(1);

/// How many requests of a kind are on their way at a time.
pub(crate) const MOST: usize = 256;

/// When a shared heartbeat was sent, once it is answered.
pub(crate) type Beat = watch::Receiver<Option<Result<Instant, ZkError>>>;

/// One session.
pub(crate) struct Session {
    pub(crate) client: Client,
    /// The session's timeout, as negotiated.
    pub(crate) timeout: Duration,
    pub(crate) acl: Acl,
    root: String,
    /// In which format nodes are written.
    format: Format,
    pub(crate) servers: Servers,
    /// What the next creation has to write to, if it was made yet. Locked while that changes.
    pub(crate) epoch: tokio::sync::Mutex<Option<Arc<str>>>,
    places: Mutex<HashMap<ClaimId, Arc<Place>>>,
    /// No lease ends before this time.
    next_end: AtomicU64,
    /// Claims that were granted a short while ago, and when, in that order.
    fresh: Mutex<VecDeque<(Instant, Arc<Place>)>>,
    beat: AtomicU64,
    /// The shared heartbeat that has not been sent yet, if somebody waits for it.
    pub(crate) next_beat: Mutex<Option<Beat>>,
    pub(crate) lists: Arc<Lists>,
    /// Room for claims that come, for those that are given up, and for what those ask who wait: see
    /// [`window`](crate::window).
    pub(crate) acquires: Arc<Semaphore>,
    pub(crate) releases: Arc<Semaphore>,
    pub(crate) polls: Semaphore,
    over: AtomicBool,
    ending: Notify,
    rest: Arc<Rest>,
    events: StoreEventSender,
    /// Where what is under way is seen through to its end.
    runtime: Handle,
}

impl Session {
    /// Opens one.
    pub(crate) async fn open(
        config: &ZkConfig,
        events: StoreEventSender,
        runtime: Handle,
    ) -> Result<Arc<Self>, Error> {
        let mut began = Clock::Boot.now();
        let mut client = connect(config, config.session_timeout).await?;
        if client.session_timeout() < config.session_timeout {
            // The driver takes its time to notice a dead server, of the timeout that it asked for.
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

    /// The directory of a lock.
    pub(crate) fn dir(&self, name: &LockName) -> String {
        format!("{}/{}", self.root, segment(name))
    }

    /// The directory of the locks' directories; empty where there is none.
    pub(crate) fn root(&self) -> &str {
        &self.root
    }

    /// For how long a beat proves that the servers keep the session.
    pub(crate) fn longest_lease(&self) -> Duration {
        self.timeout / 2
    }

    /// How long a caller waits for an answer. What is not answered then goes on in the background.
    pub(crate) fn patience(&self) -> Duration {
        self.timeout / 3
    }

    // --- claims ---

    /// The claim's place, a new one if need be, with its lease started anew.
    pub(crate) fn place(&self, request: &AcquireRequest) -> Arc<Place> {
        let mut places = self.places.lock();
        let place = places
            .entry(request.claim)
            .or_insert_with(|| Arc::new(Place::new(request, self.format)));
        let place = Arc::clone(place);
        drop(places);
        self.touch(&place, request.lease);
        self.rest.stir();
        place
    }

    /// A claim's lease starts anew, from now on.
    pub(crate) fn touch(&self, place: &Place, lease: Duration) {
        self.may_end(place.touch(lease));
    }

    /// A lease may end then, and none is to be overlooked.
    pub(crate) fn may_end(&self, until: Instant) {
        if until.as_nanos() < self.next_end.load(Ordering::SeqCst) {
            self.next_end.fetch_min(until.as_nanos(), Ordering::SeqCst);
        }
    }

    pub(crate) fn find(&self, claim: ClaimId) -> Option<Arc<Place>> {
        self.places.lock().get(&claim).cloned()
    }

    /// The places of these claims.
    pub(crate) fn places_of(
        &self,
        claims: impl Iterator<Item = ClaimId>,
    ) -> Vec<Option<Arc<Place>>> {
        let places = self.places.lock();
        claims.map(|claim| places.get(&claim).cloned()).collect()
    }

    /// Takes a claim out of the books, if it is still this one.
    pub(crate) fn forget(&self, place: &Arc<Place>) {
        place.lose();
        let mut places = self.places.lock();
        if places.get(&place.claim).is_some_and(|known| Arc::ptr_eq(known, place)) {
            places.remove(&place.claim);
        }
    }

    /// The claim's node is gone, or will be: takes it out of the books and tells.
    pub(crate) fn lose(&self, place: &Arc<Place>) {
        if place.lose() {
            self.tell(place);
        }
        self.forget(place);
    }

    /// Nobody need listen.
    fn tell(&self, place: &Place) {
        self.events.send(StoreEvent::Ended(place.claim));
    }

    /// It will be watched, if it is held for long enough.
    pub(crate) fn granted(&self, place: &Arc<Place>) {
        self.fresh.lock().push_back((Clock::Boot.now(), Arc::clone(place)));
    }

    /// The claims that were granted [`BRIEF`] ago or earlier, and that no call before this one has
    /// given.
    pub(crate) fn take_matured(&self, now: Instant) -> Vec<Arc<Place>> {
        let mut fresh = self.fresh.lock();
        let matured = fresh.partition_point(|(granted, _)| now.since(*granted) >= BRIEF);
        fresh.drain(..matured).map(|(_, place)| place).collect()
    }

    /// Loses the claims whose lease has ended. They stay in the books until their nodes are
    /// deleted. With them, when the next lease may end.
    pub(crate) fn lapse(&self, now: Instant) -> (Vec<Arc<Place>>, Option<Duration>) {
        let mut lapsed = Vec::new();
        let places = self.places.lock();
        let known = Instant::from_nanos(self.next_end.load(Ordering::SeqCst));
        if now < known {
            // There may be 100,000, and most leases are renewed long before they end.
            return (lapsed, (!places.is_empty()).then(|| known.since(now)));
        }
        // What is touched from here on is seen by this look, or lowers this itself.
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

    /// What the minder waits on while nothing is kept; `None` when something is.
    pub(crate) fn rest(&self) -> Option<Arc<Rest>> {
        self.rest.sleeping.store(true, Ordering::SeqCst);
        if self.places.lock().is_empty() {
            return Some(Arc::clone(&self.rest));
        }
        self.rest.sleeping.store(false, Ordering::SeqCst);
        None
    }

    // --- its life ---

    /// The leader has answered a request that was sent then.
    pub(crate) fn heard(&self, sent: Instant) {
        self.beat.fetch_max(sent.as_nanos(), Ordering::AcqRel);
    }

    /// When the last request was sent that the leader has answered.
    pub(crate) fn beat(&self) -> Instant {
        Instant::from_nanos(self.beat.load(Ordering::Acquire))
    }

    /// From when on a claim of this lease may be believed in, now that it has come to hold the
    /// lock: for no longer than a beat allows.
    pub(crate) fn since(&self, at: Instant, lease: Duration) -> Instant {
        let longest = self.beat().saturating_add(self.longest_lease());
        at.min(longest.saturating_sub(lease))
    }

    /// Whether it has ended.
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

    /// Waits for the answer for as long as a caller has patience, and sees to it in the background
    /// after that, and if the caller goes: what is half done is never dropped.
    pub(crate) async fn see_through<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> Result<T, Error> {
        let (runtime, patience) = (self.runtime.clone(), self.patience());
        // All of it there, timers too: the caller's runtime may end.
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

    /// Runs what nobody waits for.
    pub(crate) fn background(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.runtime.spawn(work);
    }

    /// It has ended, and with it all its claims.
    pub(crate) fn end(&self) {
        self.over.store(true, Ordering::SeqCst);
        let places: Vec<_> = self.places.lock().drain().map(|(_, place)| place).collect();
        for place in places {
            self.lose(&place);
        }
        self.ending.notify_waiters();
    }

    /// Sends a request until it is answered for certain, or the session is over. Whether the
    /// outcome of an earlier sending was unknown stands beside the answer.
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

    /// Waits for the answer to a request that has been sent. The driver may drop one on its way
    /// from one server to the next, without a word.
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

/// Where the minder sleeps.
#[derive(Default)]
pub(crate) struct Rest {
    sleeping: AtomicBool,
    stirred: Notify,
}

impl Rest {
    /// There is something to keep.
    fn stir(&self) {
        if self.sleeping.load(Ordering::SeqCst) && self.sleeping.swap(false, Ordering::SeqCst) {
            self.stirred.notify_one();
        }
    }

    pub(crate) async fn until_stirred(&self) {
        self.stirred.notified().await;
    }
}
