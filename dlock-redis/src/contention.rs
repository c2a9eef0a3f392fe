//! What this client knows about the contention for its locks. It chooses the shorter of two ways to
//! the same result, and nothing else depends on it.
//!
//! A claim that took a free lock exclusively is released by a short script, which fails if other
//! claims wait by then. That costs one more round trip. So the names for which claims have waited
//! are remembered for a while, and their releases take the long way at once.
//!
//! All state changes under one mutex, which is held for a few operations on maps.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use dlock_core::{ClaimId, Clock, Instant, LockName};
use parking_lot::Mutex;

/// How long a name counts as contended after a claim has waited for it.
const CONTENDED_FOR: Duration = Duration::from_secs(30);
/// The largest number of names. If there are more, some are forgotten early.
const MOST: usize = 4096;

/// The claims and names of one client.
#[derive(Default)]
pub(crate) struct Contention(Mutex<Known>);

#[derive(Default)]
struct Known {
    /// The claims that took a free lock exclusively, with one token, and are not released yet.
    alone: HashSet<ClaimId>,
    /// The names for which claims have waited, until they are forgotten.
    contended: HashMap<LockName, Instant>,
}

impl Contention {
    /// Records that a claim has taken a free lock exclusively.
    pub(crate) fn took_alone(&self, claim: ClaimId) {
        self.0.lock().alone.insert(claim);
    }

    /// Records that a claim shares its lock, or is not released by this client.
    pub(crate) fn forget(&self, claim: ClaimId) {
        self.0.lock().alone.remove(&claim);
    }

    /// Records that claims wait for this name.
    pub(crate) fn claims_wait(&self, name: &LockName) {
        let now = Clock::Boot.now();
        let mut known = self.0.lock();
        if known.contended.len() >= MOST {
            known.contended.retain(|_, until| *until > now);
        }
        if known.contended.len() >= MOST {
            known.contended.clear();
        }
        known.contended.insert(name.clone(), now.saturating_add(CONTENDED_FOR));
    }

    /// Returns whether the release of a claim can probably take the short way. It returns true once
    /// for each claim.
    pub(crate) fn ends_alone(&self, name: &LockName, claim: ClaimId) -> bool {
        let mut known = self.0.lock();
        known.alone.remove(&claim) && !known.is_contended(name, Clock::Boot.now())
    }
}

impl Known {
    fn is_contended(&self, name: &LockName, now: Instant) -> bool {
        self.contended.get(name).is_some_and(|until| *until > now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(number: usize) -> LockName {
        LockName::new(&format!("n{number}")).unwrap()
    }

    #[test]
    fn only_a_claim_that_is_alone_ends_alone_and_once() {
        let (contention, claim) = (Contention::default(), ClaimId::random());
        assert!(!contention.ends_alone(&name(1), claim), "its grant is not known");
        contention.took_alone(claim);
        assert!(contention.ends_alone(&name(1), claim));
        assert!(!contention.ends_alone(&name(1), claim), "its release was sent before");
        contention.took_alone(claim);
        contention.forget(claim);
        assert!(!contention.ends_alone(&name(1), claim), "it has become a reader");
    }

    #[test]
    fn a_contended_name_affects_no_other_and_names_are_bounded() {
        let contention = Contention::default();
        for number in 0..=MOST {
            contention.claims_wait(&name(number));
        }
        let known = contention.0.lock().contended.len();
        assert!((1..=MOST).contains(&known), "{known}");
        for (number, alone) in [(MOST, false), (MOST + 1, true)] {
            let claim = ClaimId::random();
            contention.took_alone(claim);
            assert_eq!(contention.ends_alone(&name(number), claim), alone, "{number}");
        }
        assert!(
            !contention
                .0
                .lock()
                .is_contended(&name(MOST), Clock::Boot.now().saturating_add(CONTENDED_FOR))
        );
    }
}
