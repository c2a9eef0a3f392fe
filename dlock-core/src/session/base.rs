//! One session: its claims, its last beat, and its end.
//!
//! # Concurrency
//!
//! - `claims` changes under its mutex. `end` sets `over`, then takes all claims out. `claim_of`
//!   reads `over` under the mutex, so a claim that enters later has ended already.
//! - `next_end` is at or before the end of every lease. A call writes its end in the claim, then
//!   lowers `next_end`; `lapse` sets that to the maximum, then reads all claims. As both orders are
//!   sequentially consistent, `lapse` reads the new end, or the call lowers `next_end` after it.
//! - `beat` only grows (`fetch_max`), since answers come in any order.
//! - `until_over` registers with `ending`, then reads `over`. `end` sets `over`, then notifies.

use std::{
    collections::{HashMap, VecDeque},
    fmt,
    ops::Deref,
    sync::{Arc, Weak},
    time::Duration,
};

use tokio::{
    runtime::Handle,
    sync::{OwnedSemaphorePermit, Semaphore},
};

use super::Life;
use crate::{
    AcquireRequest, Certainty, ClaimId, Clock, Error, Instant, Mode, Renewal, SendFlag, StoreEvent,
    StoreEventSender,
    sync::{
        Mutex, Notify,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

/// One session, without what depends on the store.
pub struct SessionBase<C> {
    pub(super) claims: Mutex<HashMap<ClaimId, Arc<C>>>,
    /// Those of `claims` that have ended, and that the store has refused to delete.
    pub(super) deferred: Mutex<Deferred<C>>,
    /// No lease ends before this time.
    next_end: AtomicU64,
    /// Claims that were granted a short while ago, with the time of the grant, in that order.
    fresh: Mutex<VecDeque<(Instant, Weak<C>)>>,
    beat: AtomicU64,
    pub(super) over: AtomicBool,
    ending: Notify,
    events: StoreEventSender,
    runtime: Handle,
    response_timeout: Duration,
    no_answer: fn() -> Error,
    /// The reason why requests fail, or why there is no next session yet.
    last_error: Mutex<Option<Error>>,
}

/// The claims of a session that must still be removed, each with the time of the first refusal.
pub(super) struct Deferred<C> {
    pub(super) claims: HashMap<ClaimId, (Arc<C>, Instant)>,
    /// A task repeats their deletions.
    pub(super) is_served: bool,
}

impl<C> Default for Deferred<C> {
    fn default() -> Self {
        Self { claims: HashMap::new(), is_served: false }
    }
}

impl<C: Deref<Target = Life> + Send + Sync> SessionBase<C> {
    /// How long a granted claim is not watched in the store, since most are released before.
    const BRIEF: Duration = Duration::from_secs(1);

    /// Begins a session whose request was sent at `began`, which is its first beat.
    ///
    /// The `events` are those of the backend. All requests run on the `runtime`, timers included,
    /// since a caller's runtime may end. A caller waits for an answer for `response_timeout`, and
    /// then gets the error `no_answer`.
    pub fn new(
        began: Instant,
        events: StoreEventSender,
        runtime: Handle,
        response_timeout: Duration,
        no_answer: fn() -> Error,
    ) -> Self {
        Self {
            claims: Mutex::new(HashMap::new()),
            deferred: Mutex::default(),
            next_end: AtomicU64::new(u64::MAX),
            fresh: Mutex::new(VecDeque::new()),
            beat: AtomicU64::new(began.as_nanos()),
            over: AtomicBool::new(false),
            ending: Notify::new(),
            events,
            runtime,
            response_timeout,
            no_answer,
            last_error: Mutex::new(None),
        }
    }

    // --- claims ---

    /// Returns the claim of a request, a `new` one if necessary, with its lease extended. If the
    /// session has ended, the claim has ended too.
    pub fn claim_of(&self, request: &AcquireRequest, new: impl FnOnce() -> C) -> Arc<C> {
        let mut claims = self.claims.lock();
        let new = || Arc::new(new());
        let claim = Arc::clone(claims.entry(request.claim).or_insert_with(new));
        if self.is_over() {
            claim.lose();
        }
        drop(claims);
        self.may_end(claim.touch(request.lease));
        claim
    }

    /// If a claim holds the lock, renews its lease, which then ends at `until` or later, and
    /// returns the mode. `None` as well if the renewal names the token of another grant. Only the
    /// last renewal of a claim shortens the lease.
    pub fn extend(&self, claim: &C, renewal: &Renewal, until: Instant) -> Option<Mode> {
        let mode = claim.extend(renewal, until)?;
        self.may_end(until);
        Some(mode)
    }

    /// Records that a lease may end at this time: `lapse` must not miss it.
    fn may_end(&self, until: Instant) {
        if until.as_nanos() < self.next_end.load(Ordering::SeqCst) {
            self.next_end.fetch_min(until.as_nanos(), Ordering::SeqCst);
        }
    }

    /// Returns a claim of this session.
    pub fn find(&self, claim: ClaimId) -> Option<Arc<C>> {
        self.claims.lock().get(&claim).cloned()
    }

    /// Returns these claims, as far as they are of this session.
    pub fn find_all(&self, claims: impl Iterator<Item = ClaimId>) -> Vec<Option<Arc<C>>> {
        let known = self.claims.lock();
        claims.map(|claim| known.get(&claim).cloned()).collect()
    }

    /// Returns the claims for which this is true.
    pub fn claims_where(&self, is_wanted: impl Fn(&C) -> bool) -> Vec<Arc<C>> {
        self.claims.lock().values().filter(|claim| is_wanted(claim)).cloned().collect()
    }

    /// Returns whether there are claims.
    pub fn has_claims(&self) -> bool {
        !self.claims.lock().is_empty()
    }

    /// Ends a claim that the store does not have any more, and removes it, if it is still this one.
    /// For a claim whose key may exist, call [`defer_deletion`](Self::defer_deletion).
    pub fn forget(&self, claim: &Arc<C>) {
        let id = claim.claim();
        claim.lose();
        let mut claims = self.claims.lock();
        if claims.get(&id).is_some_and(|known| Arc::ptr_eq(known, claim)) {
            claims.remove(&id);
        }
    }

    /// Removes a claim that the store has lost, or will, and sends the event of a loss.
    pub fn lose(&self, claim: &Arc<C>) {
        if claim.lose() {
            self.report_loss(claim);
        }
        self.forget(claim);
    }

    /// Sends the event of a loss. There may be no receiver.
    fn report_loss(&self, claim: &C) {
        self.events.send(StoreEvent::Ended(claim.claim()));
    }

    /// Records a grant. If the claim is held for longer than a second,
    /// [`take_matured`](Self::take_matured) returns it.
    pub fn granted(&self, claim: &Arc<C>) {
        self.fresh.lock().push_back((Clock::Boot.now(), Arc::downgrade(claim)));
    }

    /// Returns the claims that were granted a second ago or earlier. Each is returned once. The
    /// backend watches them in the store, where other clients may delete them.
    pub fn take_matured(&self, now: Instant) -> Vec<Arc<C>> {
        let mut fresh = self.fresh.lock();
        let matured = fresh.partition_point(|(granted, _)| now.since(*granted) >= Self::BRIEF);
        fresh.drain(..matured).filter_map(|(_, claim)| claim.upgrade()).collect()
    }

    /// Ends the claims whose lease has ended. Returns them, and the time until the next lease may
    /// end. They stay here until the backend has deleted them in the store, and calls
    /// [`forget`](Self::forget).
    pub fn lapse(&self, now: Instant) -> (Vec<Arc<C>>, Option<Duration>) {
        let mut lapsed = Vec::new();
        let claims = self.claims.lock();
        let known = Instant::from_nanos(self.next_end.load(Ordering::SeqCst));
        if now < known {
            // There may be 100,000 claims, and most leases are renewed long before they end.
            return (lapsed, (!claims.is_empty()).then(|| known.since(now)));
        }
        // A claim that is touched from here on is seen by the loop, or lowers this value itself.
        self.next_end.store(u64::MAX, Ordering::SeqCst);
        let mut next = None;
        for claim in claims.values() {
            if let Some(granted) = claim.lapse(now) {
                lapsed.push(Arc::clone(claim));
                if granted {
                    self.report_loss(claim);
                }
            } else if !claim.is_over() {
                let remaining = claim.remaining(now);
                next = Some(next.map_or(remaining, |next: Duration| next.min(remaining)));
            }
        }
        if let Some(next) = next {
            self.next_end.fetch_min(now.saturating_add(next).as_nanos(), Ordering::SeqCst);
        }
        (lapsed, next)
    }

    // --- its lifetime ---

    /// Records a beat, which was sent at `sent`: the store has shown that it keeps the session.
    pub fn heard(&self, sent: Instant) {
        self.beat.fetch_max(sent.as_nanos(), Ordering::SeqCst);
    }

    /// Returns the time at which the last beat was sent.
    pub fn beat(&self) -> Instant {
        Instant::from_nanos(self.beat.load(Ordering::SeqCst))
    }

    /// Returns whether it has ended.
    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }

    /// Waits until it ends.
    ///
    /// # Cancel safety
    /// The future can be dropped at any time.
    pub async fn until_over(&self) {
        let mut ending = std::pin::pin!(self.ending.notified());
        ending.as_mut().enable();
        if !self.is_over() {
            ending.await;
        }
    }

    /// Ends the session, and all its claims with it: holders get the event of a loss.
    pub fn end(&self) {
        self.over.store(true, Ordering::SeqCst);
        let claims: Vec<_> = self.claims.lock().drain().map(|(_, claim)| claim).collect();
        for claim in claims {
            self.lose(&claim);
        }
        self.ending.notify_waiters();
    }

    // --- its requests ---

    /// Returns how long a caller waits for an answer.
    pub fn response_timeout(&self) -> Duration {
        self.response_timeout
    }

    /// Returns the error for a missing answer.
    pub fn no_answer(&self) -> Error {
        (self.no_answer)()
    }

    /// Records the reason why the store can't be reached. It has accepted this client before, so
    /// callers try again even if it refuses the login [for now](super::for_now).
    pub fn set_error(&self, error: Error) {
        *self.last_error.lock() = Some(super::for_now(error));
    }

    /// Returns the last recorded reason, or else the error for a missing answer.
    pub(super) fn error(&self) -> Error {
        self.last_error.lock().clone().unwrap_or_else(|| self.no_answer())
    }

    /// Runs work in the background.
    pub fn background(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.runtime.spawn(work);
    }

    /// Waits for the answer, for as long as a caller does. After that, the work continues in the
    /// background: it is never dropped half-way.
    ///
    /// # Errors
    /// Those of the work, and the error for a missing answer.
    ///
    /// # Cancel safety
    /// If the future is dropped, the work continues in the background.
    pub async fn see_through<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> Result<T, Error> {
        let (runtime, response_timeout, no_answer) =
            (self.runtime.clone(), self.response_timeout, self.no_answer);
        // Boxed once: it is moved to a task, and perhaps to a second one.
        let mut work = Box::pin(work);
        let seen = self.runtime.spawn(async move {
            match tokio::time::timeout(response_timeout, &mut work).await {
                Ok(answer) => answer,
                Err(_) => {
                    runtime.spawn(work);
                    Err(no_answer())
                }
            }
        });
        seen.await.unwrap_or_else(|_| Err(no_answer()))
    }

    /// Waits for room in a window, as long as there are beats, then [sees the work
    /// through](Self::see_through). The work has its room until it has ended. A window limits the
    /// requests that are under way, so that those of the heartbeat are not late. Once there is room,
    /// `flag` begins: the flag of an acquire that its caller may give up before.
    ///
    /// # Errors
    /// Those of the work. The error for a missing answer, with the certainty `NotApplied` if there
    /// was no room.
    ///
    /// # Cancel safety
    /// If the future is dropped before there is room, the work does not begin. After that, it
    /// continues in the background.
    pub async fn see_through_in<T: Send + 'static>(
        &self,
        window: &Arc<Semaphore>,
        flag: Option<&SendFlag>,
        work: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> Result<T, Error> {
        let permit = match Arc::clone(window).try_acquire_owned() {
            Ok(permit) => permit,
            // Boxed, since most requests find room at once.
            Err(_) => Box::pin(self.room(window)).await?,
        };
        if let Some(flag) = flag {
            // Always true: this runs in the future that the core drops when it gives a request up.
            flag.begin();
        }
        self.see_through(async move {
            let done = work.await;
            drop(permit);
            done
        })
        .await
    }

    async fn room(&self, window: &Arc<Semaphore>) -> Result<OwnedSemaphorePermit, Error> {
        let not_sent = || self.no_answer().with_certainty(Certainty::NotApplied);
        let began = Clock::Boot.now();
        let mut permit = std::pin::pin!(Arc::clone(window).acquire_owned());
        loop {
            tokio::select! {
                permit = &mut permit => return permit.map_err(|_| not_sent()),
                () = self.until_over() => return Err(not_sent()),
                () = tokio::time::sleep(self.response_timeout) => {
                    let silent = Clock::Boot.now().since(self.beat().max(began));
                    if silent >= self.response_timeout {
                        return Err(not_sent());
                    }
                }
            }
        }
    }
}

impl<C> fmt::Debug for SessionBase<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionBase")
            .field("claims", &self.claims.lock().len())
            .field("over", &self.over.load(Ordering::SeqCst))
            .finish_non_exhaustive()
    }
}
