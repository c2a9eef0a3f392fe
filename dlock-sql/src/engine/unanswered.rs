//! The claims with a request that was not answered, for example because the connection was lost.
//!
//! That request may still reach the database, up to its deadline, and perhaps after the claim was
//! sent again, granted and released. So the release of such a claim states how long the claim is
//! barred, and the row remembers that. It costs other claims nothing.
//!
//! The map changes under its mutex, since all workers of an engine share it.

use std::time::Duration;

use dlock_core::{ClaimId, Clock, Instant, machine::Micros};
use hashbrown::HashMap;
use parking_lot::Mutex;

use super::micros;

/// How long a claim is remembered after its deadline, in case the database's clock is slow or is
/// set back.
const REMEMBERED: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub(crate) struct Unanswered(Mutex<Claims>);

#[derive(Debug, Default)]
struct Claims {
    claims: HashMap<ClaimId, UnansweredClaim>,
    /// At this size, claims that are over are removed. It is twice the number that the last removal
    /// left, so that thousands of claims in an outage do not each visit all others.
    full: usize,
}

#[derive(Clone, Copy, Debug)]
struct UnansweredClaim {
    /// The time until which a request may still change the row, by the database's clock.
    until: Micros,
    /// The time when that has passed by any clock.
    forget: Instant,
}

impl Unanswered {
    /// Records that a request for these claims was not answered. It may begin up to its deadline,
    /// and takes at most `response_timeout` from there.
    pub(crate) fn add(
        &self,
        claims: impl Iterator<Item = ClaimId>,
        deadline: Micros,
        response_timeout: Duration,
    ) {
        let (now, span) = (Clock::Boot.now(), micros(response_timeout));
        let until = deadline.saturating_add(span);
        let forget = now.saturating_add(response_timeout * 2 + REMEMBERED);
        let mut inner = self.0.lock();
        if inner.claims.len() >= inner.full {
            inner.claims.retain(|_, entry| now < entry.forget);
            inner.full = 2 * inner.claims.len().max(64);
        }
        for claim in claims {
            let entry = inner.claims.entry(claim).or_insert(UnansweredClaim { until, forget });
            entry.until = entry.until.max(until);
            entry.forget = forget;
        }
    }

    /// Returns the time until which the row must bar a released claim, or 0 if no request can still
    /// arrive.
    pub(crate) fn barred_until(&self, claim: ClaimId) -> Micros {
        self.0.lock().claims.get(&claim).map_or(0, |entry| entry.until)
    }

    /// Records that a claim was released, and that the row has the bar.
    pub(crate) fn remove(&self, claim: ClaimId) {
        self.0.lock().claims.remove(&claim);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_deadline_bars_a_claim_until_its_release() {
        let (unanswered, claim) = (Unanswered::default(), ClaimId::from_bits(7));
        assert_eq!(unanswered.barred_until(claim), 0);
        for deadline in [10, 30, 20] {
            unanswered.add([claim].into_iter(), deadline, Duration::from_micros(5));
        }
        assert_eq!(
            (unanswered.barred_until(claim), unanswered.barred_until(ClaimId::from_bits(8))),
            (35, 0)
        );
        unanswered.remove(claim);
        assert_eq!(unanswered.barred_until(claim), 0);
    }
}
