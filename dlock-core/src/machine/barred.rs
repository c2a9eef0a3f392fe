//! Claims that were cancelled or released while a request for them may still be in flight.

use crate::ClaimId;

/// The claims, each with the time in microseconds until which it can't come back. The list is
/// short: it contains claims whose connection was lost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Barred(Vec<(ClaimId, u64)>);

impl Barred {
    pub(super) const fn new() -> Self {
        Self(Vec::new())
    }

    /// Bars the claim: until then, requests that were sent for it have no effect.
    pub(super) fn add(&mut self, claim: ClaimId, until: u64, now: u64) {
        match self.0.iter_mut().find(|(barred, _)| *barred == claim) {
            Some(barred) => barred.1 = barred.1.max(until),
            None if until > now => self.0.push((claim, until)),
            None => {}
        }
    }

    /// Removes the claims whose time has passed.
    pub(super) fn forget(&mut self, now: u64) {
        self.0.retain(|(_, until)| *until > now);
    }

    pub(super) fn has(&self, claim: ClaimId) -> bool {
        self.0.iter().any(|(barred, _)| *barred == claim)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (ClaimId, u64)> + '_ {
        self.0.iter().copied()
    }
}
