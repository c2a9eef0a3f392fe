//! Parting with a hold: the store keeps the claim for a while, and nobody here does.

use std::{sync::Arc, time::Duration};

use super::{Hold, RELEASED};
use crate::{Instant, LockOptions, cohort::Lead, sync::atomic::Ordering};

impl Hold {
    /// Leaves the claim to the store until then. The keeper renews it once more, for what is left,
    /// tries again as it does with all renewals, and forgets it: nothing of it is left here for
    /// `shutdown` to wait for. It is the keeper's so that no earlier renewal is still on its way,
    /// which could cut this one short.
    pub(crate) fn part(self: &Arc<Self>, until: Instant) {
        self.rare().parting.store(until.as_nanos().max(1), Ordering::SeqCst);
        self.engine.keeper.hurry(self);
        if self.engine.keeper.is_stopped() {
            self.parted();
        }
    }

    /// Whether it has no holder any more.
    pub(in crate::engine) fn is_parting(&self) -> bool {
        self.parting_until() != 0
    }

    fn parting_until(&self) -> u64 {
        self.rare.get().map_or(0, |rare| rare.parting.load(Ordering::SeqCst))
    }

    /// What the last renewal is to ask for, if it is parted with.
    pub(super) fn last_lease(&self, now: Instant) -> Option<Duration> {
        let until = self.parting_until();
        (until != 0).then(|| Instant::from_nanos(until).since(now).max(LockOptions::MIN_LEASE))
    }

    /// The store has answered the last renewal.
    pub(in crate::engine) fn parted(self: &Arc<Self>) {
        if !self.end(RELEASED) {
            return;
        }
        self.engine.keeper.remove(self);
        if let Some(cohort) = &self.cohort {
            drop(Lead::of(cohort));
        }
    }
}
