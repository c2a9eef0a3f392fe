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
const KEPT: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub(crate) struct Doubts(Mutex<Book>);

#[derive(Debug, Default)]
struct Book {
    claims: HashMap<ClaimId, Doubt>,
    /// At this size, claims that are over are removed. It is twice the number that the last removal
    /// left, so that thousands of claims in an outage do not each visit all others.
    full: usize,
}

#[derive(Clone, Copy, Debug)]
struct Doubt {
    /// The time until which a request may still change the row, by the database's clock.
    until: Micros,
    /// The time when that has passed by any clock.
    forget: Instant,
}

impl Doubts {
    /// Records that a request for these claims was not answered. It may begin up to its deadline,
    /// and takes at most `patience` from there.
    pub(crate) fn unanswered(
        &self,
        claims: impl Iterator<Item = ClaimId>,
        deadline: Micros,
        patience: Duration,
    ) {
        let (now, span) = (Clock::Boot.now(), micros(patience));
        let until = deadline.saturating_add(span);
        let forget = now.saturating_add(patience * 2 + KEPT);
        let mut book = self.0.lock();
        if book.claims.len() >= book.full {
            book.claims.retain(|_, doubt| now < doubt.forget);
            book.full = 2 * book.claims.len().max(64);
        }
        for claim in claims {
            let doubt = book.claims.entry(claim).or_insert(Doubt { until, forget });
            doubt.until = doubt.until.max(until);
            doubt.forget = forget;
        }
    }

    /// Returns the time until which the row must bar a released claim, or 0 if no request can still
    /// arrive.
    pub(crate) fn bar(&self, claim: ClaimId) -> Micros {
        self.0.lock().claims.get(&claim).map_or(0, |doubt| doubt.until)
    }

    /// Records that a claim was released, and that the row has the bar.
    pub(crate) fn settled(&self, claim: ClaimId) {
        self.0.lock().claims.remove(&claim);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_sending_counts_until_its_claim_is_released() {
        let (doubts, claim) = (Doubts::default(), ClaimId::from_bits(7));
        assert_eq!(doubts.bar(claim), 0);
        for deadline in [10, 30, 20] {
            doubts.unanswered([claim].into_iter(), deadline, Duration::from_micros(5));
        }
        assert_eq!((doubts.bar(claim), doubts.bar(ClaimId::from_bits(8))), (35, 0));
        doubts.settled(claim);
        assert_eq!(doubts.bar(claim), 0);
    }
}
