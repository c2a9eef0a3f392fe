//! The claims that were asked for without an answer, as on a connection that was lost.
//!
//! What was sent for them may still reach the database, up to its deadline, and perhaps after the claim
//! was asked for again, granted and given back. So whoever gives such a claim back says until when it
//! must not come back, and the row remembers that. No other claim pays for it.

use std::time::Duration;

use dlock_core::{ClaimId, Clock, Instant, machine::Micros};
use hashbrown::HashMap;
use parking_lot::Mutex;

use super::micros;

/// A claim is kept in mind for so long after its deadline, however the database's clock goes.
const KEPT: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub(crate) struct Doubts(Mutex<Book>);

#[derive(Debug, Default)]
struct Book {
    claims: HashMap<ClaimId, Doubt>,
    /// At this size those that are over are looked for: twice what was left the last time, so that
    /// thousands of claims in an outage cost no look at all of them each.
    full: usize,
}

#[derive(Clone, Copy, Debug)]
struct Doubt {
    /// Until when what was sent may change the row, by the database's clock.
    until: Micros,
    /// When all of that is over by any clock.
    forget: Instant,
}

impl Doubts {
    /// What was sent for these claims has not been answered. It may begin by its deadline, and takes
    /// `patience` at most from there.
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

    /// Until when a claim that is given back must not come back; 0 if nothing is on its way.
    pub(crate) fn bar(&self, claim: ClaimId) -> Micros {
        self.0.lock().claims.get(&claim).map_or(0, |doubt| doubt.until)
    }

    /// A claim was given back, and the row remembers it.
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
