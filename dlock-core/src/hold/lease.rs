//! The lease of a hold: its local deadline, the time and the length of its renewals.
//!
//! `began` and `valid_until` change only here, in [`Hold::renewed`] and [`Hold::shorten`], under
//! the lock of the renewal queue. `parting` is stored by the holder and loaded by the renewal task,
//! both with `SeqCst`: see [`HoldRef::part`](crate::engine::hold_ref::HoldRef::part).

use std::time::Duration;

use super::{
    DOUBTFUL, HELD, Hold, Terms,
    local_deadline::{holder_lease, margin, valid_until},
};
use crate::{GuardState, Instant, LockOptions, Renewal, sync::atomic::Ordering};

impl Hold {
    fn terms(&self) -> Terms {
        self.cold.get().map_or_else(Terms::default, |cold| cold.terms)
    }

    /// The whole lease on which the holder relies. The store's lease is longer by the lock-delay.
    pub(crate) const fn lease(&self) -> Duration {
        Duration::from_nanos(self.lease)
    }

    /// The lock-delay: the store keeps the claim this much longer than the holder relies on it.
    pub(crate) fn delay(&self) -> Duration {
        self.terms().delay
    }

    /// The whole lease as the store keeps it.
    pub(crate) fn stored_lease(&self) -> Duration {
        self.lease().saturating_add(self.delay())
    }

    /// Returns the time at which renewal stops (`Renew::For`).
    fn renew_until(&self) -> Instant {
        self.granted_at().saturating_add(self.terms().renewed_for)
    }

    /// Returns the renewal to send now, and whether it is the last; `None` if the lease is left to
    /// expire.
    pub(super) fn renewal(&self, now: Instant) -> Option<(Renewal, bool)> {
        let last = self.last_lease(now);
        let lease = self.lease().min(self.renew_until().since(now));
        let renewal =
            |lease| Renewal::new(self.claim(), self.mode(), lease).with_token(self.first_token());
        match last {
            // Without the lock-delay, so that the store keeps the claim exactly until then.
            Some(last) => Some((renewal(last).as_last(), true)),
            None if lease >= LockOptions::MIN_LEASE => Some((renewal(lease + self.delay()), false)),
            None => None,
        }
    }

    /// Returns when the hold is due: after a third of the lease, or at its end if it is not
    /// renewed.
    pub(super) fn renewal_due(&self) -> Instant {
        let end = self.valid_until();
        if self.is_parting() || self.is_doubted() {
            return self.began().min(end);
        }
        if self.terms().renewed_for.is_zero() {
            return end;
        }
        // A third leaves time for about eight more attempts: see `retry_due`.
        let due = self.began().saturating_add(self.lease() / 3);
        if self.renew_until().since(due) < LockOptions::MIN_LEASE { end } else { due.min(end) }
    }

    /// Returns whether its renewal may join an earlier batch. A retry keeps its backoff, and an
    /// expiry must not be reported early.
    pub(super) fn may_go_early(&self) -> bool {
        self.state() == GuardState::Held && self.slot.due() < self.valid_until()
    }

    /// Returns when to retry a failed renewal: about eight times before the end of the lease.
    pub(super) fn retry_due(&self, now: Instant) -> Instant {
        // Without jitter, all processes would retry at the same time when a store recovers.
        let jitter = rand::random_range(0.75..1.25);
        now.saturating_add((self.lease() / 12).mul_f64(jitter)).min(self.valid_until())
    }

    /// Records the answer to a renewal that was sent at `sent`: the store keeps the claim for
    /// `stored`.
    pub(super) fn renewed(&self, sent: Instant, stored: Duration) {
        let until = valid_until(sent, holder_lease(stored, self.delay()));
        // A downgrade and the renewal task may each have a request in flight, and the answers come
        // in any order. The answer to the earlier request must not move the deadline back.
        self.began.fetch_max(sent.as_nanos(), Ordering::AcqRel);
        self.valid_until.fetch_max(until.as_nanos(), Ordering::AcqRel);
        // Not a plain store: the hold may have ended while the answer was in flight.
        let _ = self.state.compare_exchange(DOUBTFUL, HELD, Ordering::AcqRel, Ordering::Acquire);
    }

    /// Shortens the lease, because the store's clock was set forward by `by` since it began.
    /// Returns true if the lease has therefore expired: the caller ends the hold.
    pub(super) fn shorten(&self, by: Duration, now: Instant) -> bool {
        // A load and a store instead of one swap: all writers have the lock of the renewal queue.
        let until = self.valid_until().saturating_sub(by);
        if until > now {
            self.valid_until.store(until.as_nanos(), Ordering::Release);
        }
        until <= now
    }

    /// Returns the lease to request with a downgrade: a whole one, unless renewal has a limit.
    pub(crate) fn next_lease(&self, now: Instant) -> Duration {
        let whole = self.lease();
        let allowed = whole.min(self.renew_until().since(now));
        // Never less than the remaining time, so that a downgrade does not shorten the lease.
        let left = self.valid_until().since(now) + margin(whole);
        allowed.max(left).max(LockOptions::MIN_LEASE) + self.delay()
    }

    /// Records that the hold has no holder any more, and that the store keeps it until `until`.
    pub(crate) fn leave_until(&self, until: Instant) {
        // 0 means that the hold has a holder.
        self.cold().parting.store(until.as_nanos().max(1), Ordering::SeqCst);
    }

    /// Returns whether it has no holder any more.
    pub(crate) fn is_parting(&self) -> bool {
        self.parting_until() != 0
    }

    fn parting_until(&self) -> u64 {
        self.cold.get().map_or(0, |cold| cold.parting.load(Ordering::SeqCst))
    }

    /// Returns the lease for the last renewal, if the hold has no holder.
    fn last_lease(&self, now: Instant) -> Option<Duration> {
        let until = self.parting_until();
        (until != 0).then(|| Instant::from_nanos(until).since(now).max(LockOptions::MIN_LEASE))
    }

    /// Returns whether it has been held for a whole lease while tasks of this process wait for it.
    /// True only once for all holds of its queue, since it leads to a warning.
    pub(super) fn is_waited_for_by_its_own(&self, now: Instant) -> bool {
        let queue = self.queue.as_ref().filter(|queue| queue.has_queue());
        now.since(self.granted_at()) >= self.lease() && queue.is_some_and(|queue| queue.warns())
    }
}
