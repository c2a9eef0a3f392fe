//! The record of one granted claim: its tokens, its local deadline, and how it ended.
//!
//! A hold knows neither the store nor a clock: callers pass the time. [`renewal_queue`] keeps the
//! holds in the order in which they are due. [`end`](crate::engine::end) is the only module that
//! ends a hold.
//!
//! # Concurrency
//!
//! | field | written by | read by |
//! |---|---|---|
//! | `state` | the task that ends the hold, once; between `HELD` and `DOUBTFUL`, under the lock of the renewal queue | all |
//! | `used` | the guard that hands the hold off, under the mutex of the [`LocalQueue`]; a loss sets `FROZEN` | all |
//! | `began`, `valid_until` | under the lock of the renewal queue | all |
//! | `slot` | under the lock of the renewal queue | under that lock |
//! | `watched` | the holder | the task that ends the hold or hands it off |
//! | `ColdFields::parting` | the holder | the renewal task |
//! | `ColdFields::requested` | a task that has handed it off | the renewal task |
//! | `ColdFields::outcome` | the task that releases it | tasks that have handed it off: see `confirm` |
//! | `ColdFields::in_flight`, `ColdFields::answered` | under the lock of the renewal queue | tasks that have handed it off |
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

mod confirm;
mod lease;
pub(crate) mod local_deadline;
pub(crate) mod local_queue;
pub(crate) mod renewal_queue;
#[cfg(test)]
mod tests;

use std::{sync::Arc, time::Duration};

use self::{
    local_deadline::{holder_lease, valid_until},
    local_queue::LocalQueue,
};
use crate::{
    AcquireRequest, Claim, ClaimId, Ended, FencingToken, Grant, GuardState, Instant, LockName,
    LockOptions, Mode, Renew,
    sync::{
        Notify, OnceLock,
        atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering},
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
/// [`ColdFields`].
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
    warned: AtomicBool,
    cold: OnceLock<Box<ColdFields>>,
    /// The local queue, whose leader role the task that ends the hold hands to the next task.
    queue: Option<Arc<LocalQueue<Hold>>>,
    /// The position in the renewal queue.
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
        let lease = holder_lease(request.lease, options.lock_delay());
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
            warned: AtomicBool::new(false),
            cold: OnceLock::new(),
            queue,
            slot: Slot::new(),
        };
        let terms = Terms::new(request.lease.saturating_sub(lease), options.renew());
        if terms != Terms::default() {
            hold.cold.get_or_init(|| Box::new(ColdFields::new(terms)));
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

    pub(crate) fn id(&self) -> ClaimId {
        self.id
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
            self.notify_watchers();
            self.notify_confirmed();
        }
        ended
    }

    /// Records that a renewal has failed.
    pub(crate) fn doubt(&self) {
        let _ = self.state.compare_exchange(HELD, DOUBTFUL, Ordering::AcqRel, Ordering::Acquire);
    }

    /// Makes the end notify [`ending`](Self::ending) from now on.
    pub(crate) fn watch(&self) {
        self.cold();
        self.watched.store(true, Ordering::SeqCst);
    }

    /// The notification of the end or the hand-off, which is sent only if the hold is watched.
    pub(crate) fn ending(&self) -> &Notify {
        &self.cold().ended
    }

    pub(crate) fn notify_watchers(&self) {
        if self.watched.load(Ordering::SeqCst) {
            self.cold().ended.notify_waiters();
        }
    }

    /// Returns how the guard with this token has ended, if it has.
    pub(crate) fn ended_for(&self, token: FencingToken) -> Option<Ended> {
        let ended = self.ended();
        if self.used() > token.get() { Some(Ended::Released) } else { ended }
    }

    /// Returns true once: the caller then logs the warning that this process waits for its own
    /// lock.
    pub(crate) fn warns(&self) -> bool {
        !self.warned.swap(true, Ordering::Relaxed)
    }

    fn cold(&self) -> &ColdFields {
        self.cold.get_or_init(|| Box::new(ColdFields::new(Terms::default())))
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

/// The position of a hold in the renewal queue.
///
/// All fields are read and written only under the lock of the renewal queue. That lock orders the
/// accesses, so they are relaxed. The fields are atomics because tasks on other threads share the
/// hold, and because a mutex for each hold would cost more bytes.
struct Slot {
    /// The index in its list; `usize::MAX` while it is in none.
    at: AtomicUsize,
    /// The time at which the renewal task checks it, in nanoseconds.
    due: AtomicU64,
    /// Whether a renewal is in flight, so that no second one is sent.
    renewing: AtomicBool,
}

impl Slot {
    const fn new() -> Self {
        Self {
            at: AtomicUsize::new(usize::MAX),
            due: AtomicU64::new(0),
            renewing: AtomicBool::new(false),
        }
    }

    fn at(&self) -> Option<usize> {
        let at = self.at.load(Ordering::Relaxed);
        (at != usize::MAX).then_some(at)
    }

    fn set_at(&self, at: Option<usize>) {
        self.at.store(at.unwrap_or(usize::MAX), Ordering::Relaxed);
    }

    fn due(&self) -> Instant {
        Instant::from_nanos(self.due.load(Ordering::Relaxed))
    }

    /// Sets the due time. Call it only while the hold is in no list, because `due` selects the
    /// list.
    fn set_due(&self, due: Instant) {
        self.due.store(due.as_nanos(), Ordering::Relaxed);
    }

    fn is_renewing(&self) -> bool {
        self.renewing.load(Ordering::Relaxed)
    }

    fn set_renewing(&self, renewing: bool) {
        self.renewing.store(renewing, Ordering::Relaxed);
    }
}

/// Fields that few holds need: watchers, non-default terms, the time until which the store keeps
/// the claim without a holder, and the confirmation of hand-offs.
///
/// The box is allocated once, in [`Hold::new`] or by the first task that needs
/// it. Two tasks may race for that: `OnceLock` lets one of them win, and both use its box.
struct ColdFields {
    terms: Terms,
    ended: Notify,
    /// The time until which the store keeps it without a holder, in nanoseconds. 0 while it has a
    /// holder. `SeqCst`, since its writer then loads `SharedQueue::stopped`: see `HoldRef::part`.
    parting: AtomicU64,
    /// Tokens of guards that have handed it off. A renewal has to confirm all guards before
    /// `requested`; the renewal in flight confirms those before `in_flight`, and the last answer
    /// those before `answered`.
    requested: AtomicU64,
    in_flight: AtomicU64,
    answered: AtomicU64,
    /// The store's answer to the release: `UNANSWERED`, `HELD_TO_THE_END` or `LOST_BEFORE`.
    outcome: AtomicU64,
    /// Notified of each confirmation, of the end, and of `outcome`.
    confirmed: Notify,
}

const UNANSWERED: u64 = 0;
const HELD_TO_THE_END: u64 = 1;
const LOST_BEFORE: u64 = 2;

impl ColdFields {
    /// Non-default terms are set when the hold is created. A box that is allocated later has the
    /// defaults.
    fn new(terms: Terms) -> Self {
        Self {
            terms,
            ended: Notify::new(),
            parting: AtomicU64::new(0),
            requested: AtomicU64::new(0),
            in_flight: AtomicU64::new(0),
            answered: AtomicU64::new(0),
            outcome: AtomicU64::new(UNANSWERED),
            confirmed: Notify::new(),
        }
    }
}

/// Options that most locks leave at their defaults.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Terms {
    /// The lock-delay.
    delay: Duration,
    /// The time after the grant for which it is renewed. Zero: never.
    renewed_for: Duration,
}

impl Terms {
    const fn new(delay: Duration, renew: Renew) -> Self {
        let renewed_for = match renew {
            Renew::Auto => Duration::MAX,
            Renew::For(limit) => limit,
            Renew::Never => Duration::ZERO,
        };
        Self { delay, renewed_for }
    }
}

impl Default for Terms {
    fn default() -> Self {
        Self::new(Duration::ZERO, Renew::Auto)
    }
}
