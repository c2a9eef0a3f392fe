//! The claims of this client: the ids by which the masters know them, and how long they are
//! remembered.
//!
//! After a failed attempt, releases may still be under way to slow masters. If the next attempt
//! used the same id, such a release could remove its grants. So each attempt after a failed one has
//! a fresh id, and this file remembers it. `proof/dlock-models/src/quorum.rs` finds two holders without
//! this rule. All state changes under one mutex.

use std::{collections::HashMap, time::Duration};

use dlock_core::{ClaimId, Instant};
use parking_lot::Mutex;

use crate::deferred_releases::RETRIED_FOR;

/// At this size, claims that are over are removed.
const SWEEP_AT: usize = 64;

/// The claims of one client.
pub(super) struct ClaimIds(Mutex<Claims>);

struct Claims {
    known: HashMap<ClaimId, ClaimRecord>,
    sweep_at: usize,
}

/// One claim.
#[derive(Clone, Copy)]
struct ClaimRecord {
    /// The id by which the masters know it. At first it is the claim's own.
    id: ClaimId,
    /// When its leases on all masters have ended.
    lease_ends: Instant,
    /// When the entry can be removed. `None` while another attempt may follow, which needs the id.
    until: Option<Instant>,
}

impl ClaimIds {
    pub(super) fn new() -> Self {
        Self(Mutex::new(Claims { known: HashMap::new(), sweep_at: SWEEP_AT }))
    }

    /// Returns the id by which the masters know a claim.
    pub(super) fn id(&self, claim: ClaimId) -> ClaimId {
        self.0.lock().known.get(&claim).map_or(claim, |known| known.id)
    }

    /// Returns the time when the leases of a claim on all masters have ended, if it is known.
    pub(super) fn lease_ends(&self, claim: ClaimId) -> Option<Instant> {
        self.0.lock().known.get(&claim).map(|known| known.lease_ends)
    }

    /// Prepares another attempt of the claim, with another id.
    pub(super) fn replace(&self, claim: ClaimId, now: Instant, lease: Duration) {
        let known = ClaimRecord {
            id: ClaimId::random(),
            lease_ends: now.saturating_add(lease),
            until: None,
        };
        self.0.lock().put(claim, known, now);
    }

    /// Records that the claim holds its lock for another lease.
    pub(super) fn held(&self, claim: ClaimId, now: Instant, lease: Duration) {
        let mut claims = self.0.lock();
        let id = claims.known.get(&claim).map_or(claim, |known| known.id);
        let lease_ends = now.saturating_add(lease);
        claims.put(claim, ClaimRecord { id, lease_ends, until: Some(lease_ends) }, now);
    }

    /// Records that no further attempt follows. The id is kept for as long as a release may follow.
    pub(super) fn ends(&self, claim: ClaimId, now: Instant) {
        if let Some(known) = self.0.lock().known.get_mut(&claim) {
            known.until = Some(known.lease_ends.max(now.saturating_add(RETRIED_FOR)));
        }
    }

    /// Forgets a claim. No further request about it follows.
    pub(super) fn forget(&self, claim: ClaimId) {
        self.0.lock().known.remove(&claim);
    }

    /// Returns the number of claims.
    pub(super) fn len(&self) -> usize {
        self.0.lock().known.len()
    }
}

impl Claims {
    fn put(&mut self, claim: ClaimId, known: ClaimRecord, now: Instant) {
        if self.known.len() >= self.sweep_at {
            self.known.retain(|_, known| known.until.is_none_or(|until| until > now));
            self.known.shrink_to(2 * self.known.len());
            self.sweep_at = SWEEP_AT.max(2 * self.known.len());
        }
        self.known.insert(claim, known);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(60);

    fn at(seconds: u64) -> Instant {
        Instant::from_nanos(0).saturating_add(Duration::from_secs(seconds))
    }

    #[test]
    fn a_retried_claim_has_a_new_id_until_it_is_over() {
        let (ids, claim) = (ClaimIds::new(), ClaimId::random());
        assert_eq!(ids.id(claim), claim);
        ids.replace(claim, at(0), LEASE);
        let second = ids.id(claim);
        assert_ne!(second, claim);
        ids.replace(claim, at(1), LEASE);
        let third = ids.id(claim);
        assert!(third != claim && third != second);
        ids.held(claim, at(2), LEASE);
        assert_eq!((ids.id(claim), ids.lease_ends(claim)), (third, Some(at(62))));
        ids.ends(claim, at(3));
        assert_eq!(ids.id(claim), third);
        ids.forget(claim);
        assert_eq!((ids.id(claim), ids.lease_ends(claim)), (claim, None));
    }

    #[test]
    fn ended_claims_use_no_memory_and_others_keep_their_ids() {
        let ids = ClaimIds::new();
        let waiting: Vec<_> = (0..SWEEP_AT).map(|_| ClaimId::random()).collect();
        for claim in &waiting {
            ids.replace(*claim, at(0), LEASE);
        }
        let issued: Vec<_> = waiting.iter().map(|claim| ids.id(*claim)).collect();
        for second in 0..10_000 {
            let [held, deferred] = [(); 2].map(|()| ClaimId::random());
            ids.held(held, at(second), LEASE);
            ids.replace(deferred, at(second), Duration::from_secs(1));
            ids.ends(deferred, at(second));
        }
        // 60 held claims and 30 released ones, and twice as many before the next sweep.
        assert!(ids.len() < 4 * (SWEEP_AT + 60 + 30), "{}", ids.len());
        assert!(waiting.iter().zip(&issued).all(|(claim, id)| ids.id(*claim) == *id));
    }
}
