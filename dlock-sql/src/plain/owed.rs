//! Claims that are released a second time: see [`plain`](super).
//!
//! A request without an answer is in `unanswered` until its deadline has certainly passed. If its
//! claim is released before, the claim goes into `given_back`, and is released again at that time.
//! A new request of the claim takes it out of `given_back`. Otherwise the second release would end
//! the new grant. The task that sends the statements owns both maps, so they need no lock.

use std::time::Duration;

use dlock_core::{ClaimId, Clock, Instant, LockName};
use hashbrown::HashMap;

/// The largest number of claims. Beyond that, a lock that a late request has taken is held until
/// its lease ends.
const MOST: usize = 4096;

/// Claims with a request that may still arrive.
#[derive(Debug, Default)]
pub(super) struct Owed {
    /// The time when the request has no effect any more.
    unanswered: HashMap<ClaimId, Instant>,
    /// The claims to release again, with the time for each.
    given_back: HashMap<ClaimId, (LockName, Instant)>,
}

impl Owed {
    /// Records that a request of the claim was not answered. Its deadline has passed at `over`.
    pub(super) fn unanswered(&mut self, claim: ClaimId, over: Instant) {
        let now = Clock::Boot.now();
        self.unanswered.retain(|_, over| now < *over);
        if self.unanswered.len() < MOST {
            self.unanswered.insert(claim, over);
        }
    }

    /// Records that the claim has ended, and is not held.
    pub(super) fn given_back(&mut self, name: &LockName, claim: ClaimId) {
        if let Some(over) = self.unanswered.get(&claim) {
            self.given_back.insert(claim, (name.clone(), *over));
        }
    }

    /// Records that the claim is requested, perhaps again.
    pub(super) fn asked(&mut self, claim: ClaimId) {
        self.given_back.remove(&claim);
    }

    /// Schedules another retry of the second release, which has failed.
    pub(super) fn again(&mut self, name: LockName, claim: ClaimId, pause: Duration) {
        self.given_back.insert(claim, (name, Clock::Boot.now().saturating_add(pause)));
    }

    /// Returns the time when the first of the second releases is due.
    pub(super) fn due(&self) -> Option<Instant> {
        self.given_back.values().map(|(_, due)| *due).min()
    }

    /// Removes and returns a claim whose second release is due.
    pub(super) fn take(&mut self) -> Option<(LockName, ClaimId)> {
        let now = Clock::Boot.now();
        let claim = self.given_back.iter().find(|(_, (_, due))| *due <= now).map(|(id, _)| *id)?;
        self.unanswered.remove(&claim);
        self.given_back.remove(&claim).map(|(name, _)| (name, claim))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_is_released_again_unless_it_is_wanted_again() {
        let (mut owed, name) = (Owed::default(), LockName::new("a").unwrap());
        let claim = ClaimId::from_bits;
        owed.given_back(&name, claim(1));
        assert_eq!(owed.due(), None, "all of it was answered");
        let over = Clock::Boot.now().saturating_add(Duration::from_millis(5));
        for n in [1, 2, 3] {
            owed.unanswered(claim(n), over);
        }
        for n in [1, 2] {
            owed.given_back(&name, claim(n));
        }
        owed.asked(claim(2));
        assert_eq!(owed.due(), Some(over));
        while Clock::Boot.now() < over {}
        assert_eq!(owed.take(), Some((name.clone(), claim(1))));
        assert_eq!((owed.take(), owed.due()), (None, None));
        owed.again(name, claim(1), Duration::ZERO);
        assert!(owed.take().is_some());
    }
}
