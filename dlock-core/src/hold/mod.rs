//! The record of one granted claim: its tokens, its local deadline, and how it ended.
//!
//! A hold knows neither the store nor a clock: callers pass the time. [`books`] keeps the holds in
//! the order in which they are due. [`end`](crate::engine::end) is the only module that ends a
//! hold.
//!
//! # Concurrency
//!
//! | field | written by | read by |
//! |---|---|---|
//! | `state` | the task that ends the hold, once; between `HELD` and `DOUBTFUL`, under the lock of the books | all |
//! | `used` | the guard that hands the hold off, under the mutex of the [`LocalQueue`]; a loss sets `FROZEN` | all |
//! | `began`, `valid_until` | under the lock of the books | all |
//! | `slot` | under the lock of the books | under that lock |
//! | `watched` | the holder | the task that ends the hold or hands it off |
//! | `Rare::parting` | the holder | the renewal task |
//! | `Rare::asked` | a task that has handed it off | the renewal task |
//! | `Rare::outcome` | the task that releases it | tasks that have handed it off: see `confirm` |
//! | `Rare::asking`, `Rare::answered` | under the lock of the books | tasks that have handed it off |
//! | `writer`, `downgraded` | the holder | the renewal task |
//!
//! Three orders matter. `schedules/end.rs` and `schedules/renewal.rs` run them under random
//! schedules.
//!
//! - `state` changes by compare-and-swap only, from `HELD` or `DOUBTFUL`. So a hold ends once, and
//!   a renewal that is answered after the end never brings it back.
//! - **A loss sets `FROZEN` before `state`, and a watcher loads `state` before `used`.** No token
//!   is taken from a frozen block. So a watcher that sees the end also sees whether its own guard
//!   had handed the hold off before. In that case its guard was released, and another guard was
//!   lost.
//! - **The end stores `state`, then loads `watched`. A watcher stores `watched`, then loads
//!   `state`.** One of the two sees the other, so no watcher misses the end. A store followed by a
//!   load of another field keeps its order only with `SeqCst`, which all four accesses use.
//!
//! Outside the lock, a reader of `began` or `valid_until` combines it with no other field. So an
//! older value is equivalent to an earlier read. A downgrade is stored before its request is sent.
//! A renewal that was computed before may still request the writer's mode. The store ignores this,
//! since a renewal never makes a claim heavier.

pub(crate) mod belief;
pub(crate) mod books;
mod confirm;
mod lease;
pub(crate) mod local_queue;
mod order;
mod rare;
mod slot;
pub(crate) mod steps;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use self::{
    belief::{believed, valid_until},
    local_queue::LocalQueue,
    rare::{Rare, Terms},
    slot::Slot,
};
use crate::{
    AcquireRequest, Claim, ClaimId, Ended, FencingToken, Grant, GuardState, Instant, LockName,
    LockOptions, Mode,
    sync::{
        Notify, OnceLock,
        atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering},
    },
    vocabulary::clock::nanos,
};

/// A claim that the store has granted, from the grant to its end.
///
/// | state | means | goes to |
/// |---|---|---|
/// | `HELD` | the last renewal was answered | `DOUBTFUL`, `RELEASED`, `LOST` |
/// | `DOUBTFUL` | the last renewal failed, the lease still runs | `HELD`, `RELEASED`, `LOST` |
/// | `RELEASED` | the holder released it | |
/// | `LOST` | it ended otherwise; the upper bits say how | |
///
/// A process may have 100,000 holds, so each byte counts. Fields that few holds need are in
/// [`Rare`].
pub(crate) struct Hold {
    name: LockName,
    id: ClaimId,
    mode: Mode,
    tokens: u32,
    /// The whole lease without the lock-delay, in nanoseconds.
    lease: u64,
    /// The first token of the grant.
    first: u64,
    /// The time of the grant, or a little earlier.
    granted_at: u64,
    /// The start of the current lease: the time at which the last successful request was sent.
    began: AtomicU64,
    /// The last token that was issued. `FROZEN` is set before the hold is lost, and then no token
    /// follows. So a guard was either lost or handed the hold off, never both.
    used: AtomicU64,
    /// The local deadline. Renewals move it.
    valid_until: AtomicU64,
    state: AtomicU8,
    /// Whether it is the write side of a read-write lock.
    writer: AtomicBool,
    /// Whether the claim counts as a reader from now on.
    downgraded: AtomicBool,
    /// Whether a task waits for the end.
    watched: AtomicBool,
    /// Whether the warning that this process waits in the store's queue for its own lock was
    /// logged.
    told: AtomicBool,
    rare: OnceLock<Box<Rare>>,
    /// The local queue, whose lead the task that ends the hold hands to the next task.
    queue: Option<Arc<LocalQueue<Hold>>>,
    /// The position in the books.
    slot: Slot,
}

const HELD: u8 = 0;
const DOUBTFUL: u8 = 1;
const RELEASED: u8 = 2;
const LOST: u8 = 3;
/// The unit of the index into [`REASONS`], which is in the bits above `LOST`.
const REASON: u8 = 4;
const REASONS: [Ended; 4] = [Ended::Expired, Ended::Revoked, Ended::ClockStep, Ended::StoreReset];
/// A bit above all tokens.
const FROZEN: u64 = 1 << 63;

impl Hold {
    pub(crate) fn new(
        request: AcquireRequest,
        grant: Grant,
        options: LockOptions,
        queue: Option<Arc<LocalQueue<Self>>>,
    ) -> Self {
        let lease = believed(request.lease, options.lock_delay());
        let hold = Self {
            name: request.name,
            id: request.claim,
            mode: request.mode,
            tokens: grant.tokens.max(1),
            lease: nanos(lease),
            first: grant.token.get(),
            granted_at: grant.since.as_nanos(),
            began: AtomicU64::new(grant.since.as_nanos()),
            used: AtomicU64::new(grant.token.get()),
            valid_until: AtomicU64::new(valid_until(grant.since, lease).as_nanos()),
            state: AtomicU8::new(HELD),
            writer: AtomicBool::new(false),
            downgraded: AtomicBool::new(false),
            watched: AtomicBool::new(false),
            told: AtomicBool::new(false),
            rare: OnceLock::new(),
            queue,
            slot: Slot::new(),
        };
        let terms = Terms::new(request.lease.saturating_sub(lease), options.renew());
        if terms != Terms::default() {
            hold.rare.get_or_init(|| Box::new(Rare::new(terms)));
        }
        hold
    }

    pub(crate) fn name(&self) -> &LockName {
        &self.name
    }

    pub(crate) fn queue(&self) -> Option<&Arc<LocalQueue<Self>>> {
        self.queue.as_ref()
    }

    pub(crate) const fn granted_at(&self) -> Instant {
        Instant::from_nanos(self.granted_at)
    }

    /// The start of the current lease.
    pub(crate) fn began(&self) -> Instant {
        Instant::from_nanos(self.began.load(Ordering::Acquire))
    }

    pub(crate) fn valid_until(&self) -> Instant {
        Instant::from_nanos(self.valid_until.load(Ordering::Acquire))
    }

    // --- tokens ---

    pub(crate) fn first_token(&self) -> FencingToken {
        FencingToken::new(self.first).unwrap_or(FencingToken::MAX)
    }

    /// Takes the next token of the block, if one is left. That ends the guard with the previous
    /// token, so the caller notifies the watchers.
    pub(crate) fn next_token(&self) -> Option<FencingToken> {
        let used = self.used();
        let next = self.first_token().plus(used - self.first + 1);
        if next.get() - self.first >= u64::from(self.tokens) {
            return None;
        }
        // Only one guard at a time has the hold, so no other task takes a token. A loss may freeze
        // the block meanwhile: then the swap fails, and nothing is handed off.
        self.used.compare_exchange(used, next.get(), Ordering::SeqCst, Ordering::Relaxed).ok()?;
        Some(next)
    }

    /// The last token that was issued.
    pub(crate) fn used(&self) -> u64 {
        self.used.load(Ordering::SeqCst) & !FROZEN
    }

    /// Returns whether a guard of this process has handed it off.
    pub(crate) fn was_handed_off(&self) -> bool {
        self.used() != self.first
    }

    /// Returns the claim, with the number of its used tokens.
    pub(crate) fn claim(&self) -> Claim {
        let used = u32::try_from(1 + self.used() - self.first).unwrap_or(self.tokens);
        Claim { name: self.name.clone(), id: self.id, used }
    }

    // --- state ---

    /// Returns whether nobody has ended it yet. Its lease may have expired: see
    /// [`is_over`](Self::is_over).
    pub(crate) fn is_running(&self) -> bool {
        self.state.load(Ordering::SeqCst) <= DOUBTFUL
    }

    /// Returns whether its last renewal failed.
    pub(crate) fn is_doubtful(&self) -> bool {
        self.state.load(Ordering::SeqCst) == DOUBTFUL
    }

    /// Returns whether its lease has expired although nobody has ended it yet.
    pub(crate) fn is_over(&self, now: impl FnOnce() -> Instant) -> bool {
        self.is_running() && now() >= self.valid_until()
    }

    /// Returns the recorded state. The caller compares the local deadline with the clock.
    pub(crate) fn state(&self) -> GuardState {
        match self.state.load(Ordering::Acquire) {
            HELD => GuardState::Held,
            DOUBTFUL => GuardState::Doubtful,
            _ => GuardState::Lost,
        }
    }

    /// Returns how it ended, if it has.
    pub(crate) fn ended(&self) -> Option<Ended> {
        match self.state.load(Ordering::SeqCst) {
            HELD | DOUBTFUL => None,
            RELEASED => Some(Ended::Released),
            lost => REASONS.get(usize::from(lost / REASON)).copied(),
        }
    }

    /// Ends it, once. Returns false if it had ended before.
    pub(crate) fn end(&self, how: Ended) -> bool {
        let state = match REASONS.iter().position(|reason| *reason == how) {
            None => RELEASED,
            Some(reason) => {
                // Before the state: see the second order above. If the hold ended as released
                // meanwhile, the bit does no harm, since no token is taken after the end.
                self.used.fetch_or(FROZEN, Ordering::SeqCst);
                LOST + REASON * u8::try_from(reason).unwrap_or(0)
            }
        };
        let running = |now| (now <= DOUBTFUL).then_some(state);
        let ended = self.state.fetch_update(Ordering::SeqCst, Ordering::SeqCst, running).is_ok();
        // After the state: see the third order above.
        if ended {
            self.tell_watchers();
            self.tell_confirmed();
        }
        ended
    }

    /// Records that a renewal has failed.
    pub(crate) fn doubt(&self) {
        let _ = self.state.compare_exchange(HELD, DOUBTFUL, Ordering::AcqRel, Ordering::Acquire);
    }

    /// Makes the end notify [`ending`](Self::ending) from now on.
    pub(crate) fn watch(&self) {
        self.rare();
        self.watched.store(true, Ordering::SeqCst);
    }

    /// The notification of the end or the hand-off, which is sent only if the hold is watched.
    pub(crate) fn ending(&self) -> &Notify {
        &self.rare().ended
    }

    pub(crate) fn tell_watchers(&self) {
        if self.watched.load(Ordering::SeqCst) {
            self.rare().ended.notify_waiters();
        }
    }

    /// Returns how the guard with this token has ended, if it has.
    pub(crate) fn ended_for(&self, token: FencingToken) -> Option<Ended> {
        let ended = self.ended();
        if self.used() > token.get() { Some(Ended::Released) } else { ended }
    }

    /// Returns true once: the caller then logs the warning that this process waits for its own
    /// lock.
    pub(crate) fn tells(&self) -> bool {
        !self.told.swap(true, Ordering::Relaxed)
    }

    fn rare(&self) -> &Rare {
        self.rare.get_or_init(|| Box::new(Rare::new(Terms::default())))
    }

    // --- the mode ---

    /// Returns the mode in which the store should hold the claim.
    pub(crate) fn mode(&self) -> Mode {
        if self.downgraded.load(Ordering::Acquire) { Mode::Shared } else { self.mode }
    }

    /// Records that it may be downgraded.
    pub(crate) fn mark_writer(&self) {
        self.writer.store(true, Ordering::Release);
    }

    pub(crate) fn is_writer(&self) -> bool {
        self.writer.load(Ordering::Acquire) && !self.downgraded.load(Ordering::Acquire)
    }

    /// Makes every renewal from now on request the reader's mode.
    pub(crate) fn mark_downgraded(&self) {
        self.downgraded.store(true, Ordering::Release);
    }
}
