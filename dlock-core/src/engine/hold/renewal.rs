//! The lease of a hold: what the keeper does to keep it, and what it costs when the store's clock is
//! set forward.

use std::time::Duration;

use super::{DOUBTFUL, HELD, Hold};
use crate::{
    Instant, LockOptions, Renewal,
    engine::belief::{believed, margin, valid_until},
    sync::atomic::Ordering,
};

impl Hold {
    /// Renewal stops here.
    fn renew_until(&self) -> Instant {
        self.granted_at().saturating_add(self.terms().renewed_for)
    }

    /// The renewal to send now: `None` when it must run out.
    pub(in crate::engine) fn renewal(&self, now: Instant) -> Option<Renewal> {
        let last = self.last_lease(now);
        self.last.store(last.is_some(), Ordering::Relaxed);
        let left = self.renew_until().since(now);
        let lease = self.lease().min(left);
        (last.is_some() || lease >= LockOptions::MIN_LEASE).then(|| Renewal {
            claim: self.claim(),
            mode: self.mode(),
            lease: last.unwrap_or(lease + self.delay()),
            token: Some(self.first_token()),
        })
    }

    /// When to renew the lease: after a third of it. When it is not renewed, at its end.
    pub(in crate::engine) fn renewal_due(&self) -> Instant {
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
    pub(in crate::engine) fn may_go_early(&self) -> bool {
        self.state.load(Ordering::Acquire) == HELD && self.due() < self.valid_until().as_nanos()
    }

    /// When to try again after a renewal failed: some eight times before the end.
    pub(in crate::engine) fn retry_due(&self, now: Instant) -> Instant {
        let jitter = rand::random_range(0.75..1.25);
        now.saturating_add((self.lease() / 12).mul_f64(jitter)).min(self.valid_until())
    }

    /// A renewal that was sent at `sent` has been answered: the store keeps the claim for so long.
    /// Called under the keeper's lock.
    pub(in crate::engine) fn renewed(&self, sent: Instant, stored: Duration) {
        let until = valid_until(sent, believed(stored, self.delay()));
        self.began.fetch_max(sent.as_nanos(), Ordering::AcqRel);
        self.valid_until.fetch_max(until.as_nanos(), Ordering::AcqRel);
        let _ = self.state.compare_exchange(DOUBTFUL, HELD, Ordering::AcqRel, Ordering::Acquire);
    }

    /// The store's clock was set forward by so much since the lease began; whether it was past the
    /// end, so that the hold is to be lost. Called under the keeper's lock.
    pub(in crate::engine) fn shorten(&self, by: Duration, now: Instant) -> bool {
        let until = self.valid_until().saturating_sub(by);
        if until <= now {
            return true;
        }
        self.valid_until.store(until.as_nanos(), Ordering::Release);
        false
    }

    /// A renewal has failed.
    pub(in crate::engine) fn doubt(&self) {
        let _ = self.state.compare_exchange(HELD, DOUBTFUL, Ordering::AcqRel, Ordering::Acquire);
    }

    /// The lease to ask for when the mode changes: another whole one, unless renewal has a limit.
    pub(crate) fn next_lease(&self) -> Duration {
        let now = self.engine.clock.now();
        let whole = self.lease();
        let allowed = whole.min(self.renew_until().since(now));
        let left = self.valid_until().since(now) + margin(whole);
        allowed.max(left).max(LockOptions::MIN_LEASE) + self.delay()
    }
}
