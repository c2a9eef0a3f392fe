//! Claims that are released a second time: see [`plain`](super).
//!
//! A request without an answer is in `unanswered` until its deadline has certainly passed. If its
//! claim is released before, the claim goes into `released`, and is released again at that time.
//! A new request of the claim takes it out of `released`. Otherwise the second release would end
//! the new grant. The task that sends the statements owns both maps, so they need no lock.

use std::time::Duration;

use dlock_core::{ClaimId, Clock, Instant, LockName};
use hashbrown::HashMap;

/// The largest number of claims. Beyond that, a lock that a late request has taken is held until
/// its lease ends.
const MOST: usize = 4096;

/// Claims with a request that may still arrive.
#[derive(Debug, Default)]
pub(super) struct DeferredReleases {
    /// The time when the request has no effect any more.
    unanswered: HashMap<ClaimId, Instant>,
    /// The claims to release again, with the time for each.
    released: HashMap<ClaimId, (LockName, Instant)>,
}

impl DeferredReleases {
    /// Records that a request of the claim was not answered. Its deadline has passed at `over`.
    pub(super) fn unanswered(&mut self, claim: ClaimId, over: Instant) {
        let now = Clock::Boot.now();
        self.unanswered.retain(|_, over| now < *over);
        if self.unanswered.len() < MOST {
            self.unanswered.insert(claim, over);
        }
    }

    /// Records that the claim has ended, and is not held.
    pub(super) fn released(&mut self, name: &LockName, claim: ClaimId) {
        if let Some(over) = self.unanswered.get(&claim) {
            self.released.insert(claim, (name.clone(), *over));
        }
    }

    /// Records that the claim is requested, perhaps again.
    pub(super) fn requested(&mut self, claim: ClaimId) {
        self.released.remove(&claim);
    }

    /// Schedules another retry of the second release, which has failed.
    pub(super) fn again(&mut self, name: LockName, claim: ClaimId, pause: Duration) {
        self.released.insert(claim, (name, Clock::Boot.now().saturating_add(pause)));
    }

    /// Returns the time when the first of the second releases is due.
    pub(super) fn due(&self) -> Option<Instant> {
        self.released.values().map(|(_, due)| *due).min()
    }

    /// Removes and returns a claim whose second release is due.
    pub(super) fn take(&mut self) -> Option<(LockName, ClaimId)> {
        let now = Clock::Boot.now();
        let claim = self.released.iter().find(|(_, (_, due))| *due <= now).map(|(id, _)| *id)?;
        self.unanswered.remove(&claim);
        self.released.remove(&claim).map(|(name, _)| (name, claim))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_is_released_again_unless_requested_again() {
        let (mut deferred, name) = (DeferredReleases::default(), LockName::new("a").unwrap());
        let claim = ClaimId::from_bits;
        deferred.released(&name, claim(1));
        assert_eq!(deferred.due(), None, "all of it was answered");
        let over = Clock::Boot.now().saturating_add(Duration::from_millis(5));
        for n in [1, 2, 3] {
            deferred.unanswered(claim(n), over);
        }
        for n in [1, 2] {
            deferred.released(&name, claim(n));
        }
        deferred.requested(claim(2));
        assert_eq!(deferred.due(), Some(over));
        while Clock::Boot.now() < over {}
        assert_eq!(deferred.take(), Some((name.clone(), claim(1))));
        assert_eq!((deferred.take(), deferred.due()), (None, None));
        deferred.again(name, claim(1), Duration::ZERO);
        assert!(deferred.take().is_some());
    }
}
