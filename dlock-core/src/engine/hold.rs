//! One held claim.

mod parting;
mod rare;
mod release;
mod renewal;

pub(crate) use release::{LettingGo, Releasing};

use std::{fmt, sync::Arc, time::Duration};

use self::rare::{Rare, Terms};
use super::{
    Engine,
    belief::{believed, valid_until},
};
use crate::{
    AcquireRequest, ClaimId, Error, FencingToken, Grant, GuardState, Instant, LockName,
    LockOptions, Mode, Renew,
    cohort::{Cohort, Lead},
    guard::Ended,
    sync::{
        OnceLock,
        atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering},
    },
};

/// A claim that the store has granted, from the grant to its end.
///
/// | state | means | goes to |
/// |---|---|---|
/// | `HELD` | the last renewal was answered | `DOUBTFUL`, `RELEASED`, `LOST` |
/// | `DOUBTFUL` | the last renewal failed, the lease still runs | `HELD`, `RELEASED`, `LOST` |
/// | `RELEASED` | given back | |
/// | `LOST` | it ended otherwise; the upper bits say how | |
///
/// There may be 100,000 of them, so each byte counts: what few need is in [`Rare`].
pub(crate) struct Hold {
    pub(crate) engine: Arc<Engine>,
    name: LockName,
    pub(super) id: ClaimId,
    mode: Mode,
    tokens: u32,
    /// The whole lease, as the holder takes it, in nanoseconds.
    lease: u64,
    /// The first token of the grant.
    first: u64,
    /// When the store granted it, or a little earlier.
    granted_at: u64,
    /// When the lease began that is believed in.
    began: AtomicU64,
    /// The last token that was handed out; with `FROZEN`, none follows, since the hold is about to
    /// be lost. So a guard is either lost or has passed the hold on, and all are told the same.
    used: AtomicU64,
    /// When the holder stops believing; moved by renewals.
    valid_until: AtomicU64,
    state: AtomicU8,
    /// It is the write side of a read-write lock.
    writer: AtomicBool,
    /// The claim counts as a reader from now on.
    downgraded: AtomicBool,
    /// Somebody waits for the end.
    watched: AtomicBool,
    /// The keeper has it in hand: a renewal is on its way, or its loss is being told.
    pub(super) renewing: AtomicBool,
    /// The renewal on its way is the last one: see [`Hold::part`].
    pub(super) last: AtomicBool,
    /// It was told that somebody of this process waits in the store's queue for it.
    pub(super) told: AtomicBool,
    rare: OnceLock<Box<Rare>>,
    /// The end of a hold, whoever brings it about, passes on the lead of its cohort.
    cohort: Option<Arc<Cohort>>,
    /// Where the keeper has it; touched under the keeper's lock only.
    pub(super) place: Place,
}

/// A hold's place in the keeper's books.
pub(super) struct Place {
    /// Index in its list, with `OLD` if that is one of the old; `usize::MAX` while it is in none.
    at: AtomicUsize,
    /// When the keeper is to look at it.
    pub(super) due: AtomicU64,
}

impl Place {
    const fn new() -> Self {
        Self { at: AtomicUsize::new(usize::MAX), due: AtomicU64::new(0) }
    }

    /// Where it is: the index, and whether among the old.
    pub(super) fn get(&self) -> Option<(usize, bool)> {
        let at = self.at.load(Ordering::Relaxed);
        (at != usize::MAX).then_some((at & !OLD, at & OLD != 0))
    }

    pub(super) fn set(&self, at: usize, old: bool) {
        self.at.store(if old { at | OLD } else { at }, Ordering::Relaxed);
    }

    /// It is in no list any more.
    pub(super) fn clear(&self) {
        self.at.store(usize::MAX, Ordering::Relaxed);
    }
}

const HELD: u8 = 0;
const DOUBTFUL: u8 = 1;
const RELEASED: u8 = 2;
const LOST: u8 = 3;
/// Above `LOST`: one of [`REASONS`], by its place there.
const REASON: u8 = 4;
const REASONS: [Ended; 4] = [Ended::Expired, Ended::Revoked, Ended::ClockStep, Ended::StoreReset];
/// Above all indices.
const OLD: usize = 1 << (usize::BITS - 1);
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
        let lease = believed(request.lease, options.lock_delay());
        let hold = Arc::new(Self {
            engine: Arc::clone(engine),
            name: request.name,
            id: request.claim,
            mode: request.mode,
            lease: nanos(lease),
            first: grant.token.get(),
            tokens: grant.tokens.max(1),
            granted_at: grant.since.as_nanos(),
            began: AtomicU64::new(grant.since.as_nanos()),
            used: AtomicU64::new(grant.token.get()),
            valid_until: AtomicU64::new(valid_until(grant.since, lease).as_nanos()),
            state: AtomicU8::new(HELD),
            writer: AtomicBool::new(false),
            downgraded: AtomicBool::new(false),
            watched: AtomicBool::new(false),
            renewing: AtomicBool::new(false),
            last: AtomicBool::new(false),
            told: AtomicBool::new(false),
            rare: OnceLock::new(),
            cohort,
            place: Place::new(),
        });
        let terms = Terms {
            delay: request.lease.saturating_sub(lease),
            renewed_for: match options.renew() {
                Renew::Auto => Duration::MAX,
                Renew::For(limit) => limit,
                Renew::Never => Duration::ZERO,
            },
        };
        if terms != Terms::default() {
            hold.rare_with(terms);
        }
        #[cfg(feature = "metrics")]
        engine.meter.held();
        engine.keeper.add(&hold);
        hold
    }

    pub(crate) fn name(&self) -> &LockName {
        &self.name
    }

    pub(crate) fn cohort(&self) -> Option<&Arc<Cohort>> {
        self.cohort.as_ref()
    }

    pub(crate) fn first_token(&self) -> FencingToken {
        FencingToken::new(self.first).unwrap_or(FencingToken::MAX)
    }

    pub(crate) const fn granted_at(&self) -> Instant {
        Instant::from_nanos(self.granted_at)
    }

    /// When the lease began that is believed in.
    pub(super) fn began(&self) -> Instant {
        Instant::from_nanos(self.began.load(Ordering::Acquire))
    }

    /// Takes the next token of the block, if there is one: the guard before it has ended, and who
    /// watches it is to be told.
    pub(crate) fn next_token(&self) -> Option<FencingToken> {
        let (first, used) = (self.first_token(), self.used());
        let next = first.plus(used - first.get() + 1);
        if next.get() - first.get() >= u64::from(self.tokens) {
            return None;
        }
        // One guard at a time has the hold, so nobody else moves this; but it may freeze.
        self.used.compare_exchange(used, next.get(), Ordering::SeqCst, Ordering::Relaxed).ok()?;
        Some(next)
    }

    fn used(&self) -> u64 {
        self.used.load(Ordering::SeqCst) & !FROZEN
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
            HELD | DOUBTFUL => None,
            RELEASED => Some(Ended::Released),
            lost => REASONS.get(usize::from(lost / REASON)).copied(),
        }
    }

    /// Ends it as lost, once: tells who watches and lets the next of this process try.
    pub(crate) fn lose(self: &Arc<Self>, how: Ended) {
        let reason = match how {
            Ended::Released | Ended::Expired => 0,
            Ended::Revoked => 1,
            Ended::ClockStep => 2,
            Ended::StoreReset => 3,
        };
        self.used.fetch_or(FROZEN, Ordering::SeqCst);
        if !self.end(LOST + REASON * reason) {
            return;
        }
        #[cfg(feature = "metrics")]
        self.engine.meter.lost(how);
        if how == Ended::StoreReset {
            tracing::warn!(
                target: "dlock",
                { backend = self.engine.backend.store(), lock.name = %self.name },
                "store lost its data"
            );
        }
        tracing::warn!(
            target: "dlock",
            { lock.name = %self.name, backend = self.engine.backend.store(),
              token = self.used(), reason = %how },
            "lock lost"
        );
        self.engine.keeper.remove(self);
        if let Some(cohort) = &self.cohort {
            // The next task need not wait until the guard is dropped.
            drop(Lead::of(cohort));
        }
    }

    /// Whether it has been held for a lease while tasks of this process wait for it; once for all
    /// holds of its cohort.
    pub(super) fn is_waited_for_by_its_own(&self, now: Instant) -> bool {
        let cohort = self.cohort.as_ref().filter(|cohort| cohort.has_queue());
        now.since(self.granted_at()) >= self.lease() && cohort.is_some_and(|cohort| cohort.tells())
    }

    /// Whether others stay out for longer than it was believed in, and it is so no more.
    pub(crate) fn was_lost_with_a_delay(self: &Arc<Self>) -> bool {
        !self.delay().is_zero() && self.state() == GuardState::Lost
    }

    /// Whether it still runs, as far as anybody has noticed.
    pub(crate) fn is_running(&self) -> bool {
        self.state.load(Ordering::SeqCst) <= DOUBTFUL
    }

    /// The whole lease, as the holder takes it: the store's is longer by the delay.
    pub(super) const fn lease(&self) -> Duration {
        Duration::from_nanos(self.lease)
    }

    /// For how much longer than its holder believes the store keeps it.
    pub(super) fn delay(&self) -> Duration {
        self.terms().delay
    }

    /// The whole lease that the store is asked for.
    pub(super) fn stored_lease(&self) -> Duration {
        self.lease().saturating_add(self.delay())
    }

    /// Whether its last renewal failed.
    pub(super) fn is_doubtful(&self) -> bool {
        self.state.load(Ordering::SeqCst) == DOUBTFUL
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
        #[cfg(feature = "metrics")]
        if ended {
            let after = self.engine.clock.now().since(self.granted_at());
            self.engine.meter.ended(self.mode(), after);
        }
        if ended {
            self.tell_watchers();
        }
        ended
    }

    // --- what the store and the next of this process are told ---

    /// The mode that the store should have it in.
    pub(crate) fn mode(&self) -> Mode {
        if self.downgraded.load(Ordering::Acquire) { Mode::Shared } else { self.mode }
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
            .field("name", &self.name)
            .field("mode", &self.mode())
            .field("token", &self.used())
            .field("ended", &self.ended())
            .finish_non_exhaustive()
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
