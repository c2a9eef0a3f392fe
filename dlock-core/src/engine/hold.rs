//! One held claim.

mod release;
mod renewal;

pub(crate) use release::{LettingGo, Releasing};

use std::{borrow::Cow, fmt, sync::Arc, time::Duration};

use super::{
    Engine,
    belief::{believed, valid_until},
};
use crate::{
    AcquireRequest, Claim, Error, FencingToken, Grant, GuardState, Instant, LockName, LockOptions,
    Mode, Renew,
    cohort::{Cohort, Lead},
    guard::Ended,
    sync::{
        Notify,
        atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering},
    },
};

/// A claim that the store has granted, from the grant to its end.
///
/// | state | means | goes to |
/// |---|---|---|
/// | `HELD` | the last renewal was answered | `DOUBTFUL`, `RELEASED`, or lost |
/// | `DOUBTFUL` | the last renewal failed, the lease still runs | `HELD` and as above |
/// | `EXPIRED` | the lease ran out before a renewal came through | |
/// | `REVOKED` | the store says that it is not held | |
/// | `STEPPED` | the store's clock was set past the end of the lease | |
/// | `RESET` | the store has lost it with its data | |
/// | `RELEASED` | given back | `RESTING` |
/// | `RESTING` | kept in the keeper's books for its cohort's next grant | `REVIVING`, `RETIRED` |
/// | `REVIVING` | its cohort asks for the next grant | `HELD`, `RELEASED` |
/// | `RETIRED` | the keeper found it resting and took it out of its books | |
///
/// Only a hold of a store in this process rests: one that answers both verbs at once, and that
/// the keeper has not in hand. Nothing of it can be on its way then, so its claim can be used
/// again. A quiet lock in memory is as fast
/// as it is because it makes no new hold for each grant.
pub(crate) struct Hold {
    pub(crate) engine: Arc<Engine>,
    pub(crate) request: AcquireRequest,
    /// The claim while one token was handed out.
    claim: Claim,
    /// The first token of the grant.
    first: AtomicU64,
    tokens: u32,
    /// When the store granted it, or a little earlier.
    granted_at: AtomicU64,
    /// When the lease began that is believed in.
    began: AtomicU64,
    /// By how much sooner it ends since the store's clock was set forward, in nanoseconds.
    cut: AtomicU64,
    /// The last token that was handed out; with `FROZEN`, none follows, since the hold is about to
    /// be lost. So a guard is either lost or has passed the hold on, and all are told the same.
    used: AtomicU64,
    /// When the holder stops believing; moved by renewals.
    valid_until: AtomicU64,
    renew: Renew,
    /// The whole lease, as the holder takes it: the store's is longer by the lock-delay.
    pub(super) lease: Duration,
    delay: Duration,
    state: AtomicU8,
    /// It is the write side of a read-write lock.
    writer: AtomicBool,
    /// The claim counts as a reader from now on.
    downgraded: AtomicBool,
    ended: Notify,
    /// Somebody waits for the end.
    watched: AtomicBool,
    /// The end of a hold, whoever brings it about, passes on the lead of its cohort.
    cohort: Option<Arc<Cohort>>,
    /// Where the keeper has it; touched under the keeper's lock only.
    pub(super) place: Place,
}

/// A hold's place in the keeper's books.
pub(super) struct Place {
    /// Index among the young, or `usize::MAX`.
    pub(super) young: AtomicUsize,
    /// Key among the old.
    pub(super) due: AtomicU64,
    pub(super) id: AtomicU64,
    /// The keeper has it in hand: a renewal is on its way, or its loss is being told.
    pub(super) renewing: AtomicBool,
}

const HELD: u8 = 0;
const DOUBTFUL: u8 = 1;
const RELEASED: u8 = 2;
const EXPIRED: u8 = 3;
const REVOKED: u8 = 4;
const RESTING: u8 = 5;
const REVIVING: u8 = 6;
const RETIRED: u8 = 7;
const STEPPED: u8 = 8;
const RESET: u8 = 9;
/// Above all tokens.
const FROZEN: u64 = 1 << 63;

impl Hold {
    /// Books a grant with the keeper.
    pub(crate) fn new(
        engine: &Arc<Engine>,
        request: AcquireRequest,
        grant: Grant,
        options: LockOptions,
        cohort: Option<Arc<Cohort>>,
    ) -> Arc<Self> {
        let delay = options.lock_delay();
        let lease = believed(request.lease, delay);
        let hold = Arc::new(Self {
            engine: Arc::clone(engine),
            first: AtomicU64::new(grant.token.get()),
            tokens: grant.tokens.max(1),
            granted_at: AtomicU64::new(grant.since.as_nanos()),
            began: AtomicU64::new(grant.since.as_nanos()),
            cut: AtomicU64::new(0),
            used: AtomicU64::new(grant.token.get()),
            valid_until: AtomicU64::new(valid_until(grant.since, lease).as_nanos()),
            lease,
            delay,
            renew: options.renew(),
            state: AtomicU8::new(HELD),
            writer: AtomicBool::new(false),
            downgraded: AtomicBool::new(false),
            ended: Notify::new(),
            watched: AtomicBool::new(false),
            cohort,
            place: Place {
                young: AtomicUsize::new(usize::MAX),
                due: AtomicU64::new(0),
                id: AtomicU64::new(0),
                renewing: AtomicBool::new(false),
            },
            claim: Claim { used: 1, ..request.as_claim() },
            request,
        });
        engine.keeper.add(&hold);
        hold
    }

    pub(crate) fn name(&self) -> &LockName {
        &self.request.name
    }

    pub(crate) fn cohort(&self) -> Option<&Arc<Cohort>> {
        self.cohort.as_ref()
    }

    pub(crate) fn first_token(&self) -> FencingToken {
        FencingToken::new(self.first.load(Ordering::Acquire)).unwrap_or(FencingToken::MAX)
    }

    pub(crate) fn granted_at(&self) -> Instant {
        Instant::from_nanos(self.granted_at.load(Ordering::Acquire))
    }

    /// When the lease began that is believed in.
    pub(super) fn began(&self) -> Instant {
        Instant::from_nanos(self.began.load(Ordering::Acquire))
    }

    /// Takes the next token of the block, if there is one.
    pub(crate) fn next_token(&self) -> Option<FencingToken> {
        let (first, used) = (self.first_token(), self.used());
        let next = first.plus(used - first.get() + 1);
        if next.get() - first.get() >= u64::from(self.tokens) {
            return None;
        }
        // One guard at a time has the hold, so nobody else moves this; but it may freeze.
        self.used.compare_exchange(used, next.get(), Ordering::SeqCst, Ordering::Relaxed).ok()?;
        if self.watched.load(Ordering::SeqCst) {
            self.ended.notify_waiters();
        }
        Some(next)
    }

    fn used(&self) -> u64 {
        self.used.load(Ordering::SeqCst) & !FROZEN
    }

    /// How many tokens it has.
    pub(crate) const fn block(&self) -> u32 {
        self.tokens
    }

    /// The claim, with how many of its tokens were handed out.
    pub(crate) fn claim(&self) -> Cow<'_, Claim> {
        let used = 1 + self.used() - self.first.load(Ordering::Relaxed);
        if used == 1 {
            // Made once for all grants, since it is asked for with each release.
            return Cow::Borrowed(&self.claim);
        }
        let used = u32::try_from(used).unwrap_or(self.tokens);
        Cow::Owned(Claim { used, ..self.claim.clone() })
    }

    pub(crate) fn valid_until(&self) -> Instant {
        Instant::from_nanos(self.valid_until.load(Ordering::Acquire))
    }

    /// The state as of now: past its deadline a hold is lost, whoever notices first.
    pub(crate) fn state(self: &Arc<Self>) -> GuardState {
        if self.is_running() && self.engine.clock.now() >= self.valid_until() {
            self.lose(Ended::Expired);
        }
        match self.state.load(Ordering::Acquire) {
            HELD => GuardState::Held,
            DOUBTFUL => GuardState::Doubtful,
            _ => GuardState::Lost,
        }
    }

    /// The error of who relies on it after its end.
    pub(crate) fn lost_error(&self, how: Ended) -> Error {
        Error::lost(self.name(), how).with_store(self.engine.backend.store())
    }

    /// How it ended, if it has.
    pub(crate) fn ended(&self) -> Option<Ended> {
        match self.state.load(Ordering::SeqCst) {
            RELEASED | RESTING | REVIVING | RETIRED => Some(Ended::Released),
            EXPIRED => Some(Ended::Expired),
            REVOKED => Some(Ended::Revoked),
            STEPPED => Some(Ended::ClockStep),
            RESET => Some(Ended::StoreReset),
            _ => None,
        }
    }

    /// Waits for the end of the guard with this token, by the holder's own clock if need be.
    pub(crate) fn until_ended(
        self: Arc<Self>,
        token: FencingToken,
    ) -> impl Future<Output = Ended> + Send + 'static {
        self.watched.store(true, Ordering::SeqCst);
        self.watch(token)
    }

    async fn watch(self: Arc<Self>, token: FencingToken) -> Ended {
        loop {
            let mut told = std::pin::pin!(self.ended.notified());
            told.as_mut().enable();
            if self.used() > token.get() {
                // The guard has passed it on.
                return Ended::Released;
            }
            if let Some(ended) = self.ended() {
                return ended;
            }
            let (clock, until) = (self.engine.clock, self.valid_until());
            if clock.now() >= until {
                self.lose(Ended::Expired);
                continue;
            }
            tokio::select! {
                () = &mut told => {}
                () = clock.sleep_until(until) => {}
            }
        }
    }

    /// Ends it as lost, once: tells who watches and lets the next of this process try.
    pub(crate) fn lose(self: &Arc<Self>, how: Ended) {
        let state = match how {
            Ended::Revoked => REVOKED,
            Ended::ClockStep => STEPPED,
            Ended::StoreReset => RESET,
            _ => EXPIRED,
        };
        self.used.fetch_or(FROZEN, Ordering::SeqCst);
        if !self.end(state) {
            return;
        }
        if how == Ended::StoreReset {
            let store = self.engine.backend.store();
            tracing::warn!(store, lock.name = %self.request.name, "store lost its data");
        }
        tracing::warn!(
            lock.name = %self.request.name,
            token = self.used(),
            reason = %how,
            "lock lost"
        );
        self.engine.keeper.remove(self);
        if let Some(cohort) = &self.cohort {
            // The next task need not wait until the guard is dropped.
            drop(Lead::of(cohort));
        }
    }

    /// Whether others stay out for longer than it was believed in, and it is so no more.
    pub(crate) fn was_lost_with_a_delay(self: &Arc<Self>) -> bool {
        !self.delay.is_zero() && self.state() == GuardState::Lost
    }

    /// Whether it still runs, as far as anybody has noticed.
    pub(crate) fn is_running(&self) -> bool {
        self.state.load(Ordering::SeqCst) <= DOUBTFUL
    }

    /// When the keeper is to look at it.
    pub(super) fn due(&self) -> u64 {
        self.place.due.load(Ordering::Relaxed)
    }

    /// Moves from running to `state`; false when it had ended before.
    fn end(&self, state: u8) -> bool {
        let ended = self
            .state
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |now| {
                (now <= DOUBTFUL).then_some(state)
            })
            .is_ok();
        if ended && self.watched.load(Ordering::SeqCst) {
            self.ended.notify_waiters();
        }
        ended
    }

    // --- what the store and the next of this process are told ---

    /// The mode that the store should have it in.
    pub(crate) fn mode(&self) -> Mode {
        if self.downgraded.load(Ordering::Acquire) { Mode::Shared } else { self.request.mode }
    }

    /// It may be downgraded.
    pub(crate) fn mark_writer(&self) {
        self.writer.store(true, Ordering::Release);
    }

    pub(crate) fn is_writer(&self) -> bool {
        self.writer.load(Ordering::Acquire) && !self.downgraded.load(Ordering::Acquire)
    }

    /// From now on every renewal asks for the reader's mode.
    pub(crate) fn mark_downgraded(&self) {
        self.downgraded.store(true, Ordering::Release);
    }
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hold")
            .field("name", &self.request.name)
            .field("mode", &self.mode())
            .field("token", &self.used())
            .field("ended", &self.ended())
            .finish_non_exhaustive()
    }
}
