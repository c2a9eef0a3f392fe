//! The lease of a hold: until when it is believed in, and when it is renewed and for how long.

use std::time::Duration;

use super::{
    DOUBTFUL, HELD, Hold,
    belief::{believed, margin, valid_until},
    rare::Terms,
};
use crate::{GuardState, Instant, LockOptions, Renewal, sync::atomic::Ordering};

impl Hold {
    fn terms(&self) -> Terms {
        self.rare.get().map_or_else(Terms::default, |rare| rare.terms)
    }

    /// The whole lease, as the holder takes it: the store's is longer by the delay.
    pub(crate) const fn lease(&self) -> Duration {
        Duration::from_nanos(self.lease)
    }

    /// For how much longer than its holder believes the store keeps it.
    pub(crate) fn delay(&self) -> Duration {
        self.terms().delay
    }

    /// The whole lease that the store is asked for.
    pub(crate) fn stored_lease(&self) -> Duration {
        self.lease().saturating_add(self.delay())
    }

    /// Renewal stops here.
    fn renew_until(&self) -> Instant {
        self.granted_at().saturating_add(self.terms().renewed_for)
    }

    /// The renewal to send now, and whether it is the last: `None` when the lease must run out.
    pub(super) fn renewal(&self, now: Instant) -> Option<(Renewal, bool)> {
        let last = self.last_lease(now);
        let lease = self.lease().min(self.renew_until().since(now));
        let renewal = |lease| Renewal {
            claim: self.claim(),
            mode: self.mode(),
            lease,
            token: Some(self.first_token()),
        };
        match last {
            Some(last) => Some((renewal(last), true)),
            None if lease >= LockOptions::MIN_LEASE => Some((renewal(lease + self.delay()), false)),
            None => None,
        }
    }

    /// When to renew the lease: after a third of it. When it is not renewed, at its end.
    pub(super) fn renewal_due(&self) -> Instant {
        let end = self.valid_until();
        if self.is_parting() {
            return self.began().min(end);
        }
        if self.terms().renewed_for.is_zero() {
            return end;
        }
        let due = self.began().saturating_add(self.lease() / 3);
        if self.renew_until().since(due) < LockOptions::MIN_LEASE { end } else { due.min(end) }
    }

    /// Whether its renewal may join an earlier batch: retries and ends come at their own time.
    pub(super) fn may_go_early(&self) -> bool {
        self.state() == GuardState::Held && self.slot.due() < self.valid_until()
    }

    /// When to try again after a renewal failed: some eight times before the end.
    pub(super) fn retry_due(&self, now: Instant) -> Instant {
        let jitter = rand::random_range(0.75..1.25);
        now.saturating_add((self.lease() / 12).mul_f64(jitter)).min(self.valid_until())
    }

    /// A renewal that was sent at `sent` has been answered: the store keeps the claim for so long.
    pub(super) fn renewed(&self, sent: Instant, stored: Duration) {
        let until = valid_until(sent, believed(stored, self.delay()));
        self.began.fetch_max(sent.as_nanos(), Ordering::AcqRel);
        self.valid_until.fetch_max(until.as_nanos(), Ordering::AcqRel);
        let _ = self.state.compare_exchange(DOUBTFUL, HELD, Ordering::AcqRel, Ordering::Acquire);
    }

    /// The store's clock was set forward by so much since the lease began: whether it was past the
    /// end, so that the hold is to be lost.
    pub(super) fn shorten(&self, by: Duration, now: Instant) -> bool {
        let until = self.valid_until().saturating_sub(by);
        if until > now {
            self.valid_until.store(until.as_nanos(), Ordering::Release);
        }
        until <= now
    }

    /// The lease to ask for when the mode changes: another whole one, unless renewal has a limit.
    pub(crate) fn next_lease(&self, now: Instant) -> Duration {
        let whole = self.lease();
        let allowed = whole.min(self.renew_until().since(now));
        let left = self.valid_until().since(now) + margin(whole);
        allowed.max(left).max(LockOptions::MIN_LEASE) + self.delay()
    }

    /// It has no holder any more: the store is to keep it until then.
    pub(crate) fn leave_until(&self, until: Instant) {
        self.rare().parting.store(until.as_nanos().max(1), Ordering::SeqCst);
    }

    /// Whether it has no holder any more.
    pub(crate) fn is_parting(&self) -> bool {
        self.parting_until() != 0
    }

    fn parting_until(&self) -> u64 {
        self.rare.get().map_or(0, |rare| rare.parting.load(Ordering::SeqCst))
    }

    /// The lease that the last renewal is to ask for, if it has no holder.
    fn last_lease(&self, now: Instant) -> Option<Duration> {
        let until = self.parting_until();
        (until != 0).then(|| Instant::from_nanos(until).since(now).max(LockOptions::MIN_LEASE))
    }

    /// Whether it has been held for a lease while tasks of this process wait for it; once for all
    /// holds of its queue.
    pub(super) fn is_waited_for_by_its_own(&self, now: Instant) -> bool {
        let queue = self.queue.as_ref().filter(|queue| queue.has_queue());
        now.since(self.granted_at()) >= self.lease() && queue.is_some_and(|queue| queue.tells())
    }
}
