//! The claims that were given up while something that asks for them may still be on its way.

use crate::ClaimId;

/// Each with the time in microseconds until which it can't come back. Few: of those whose connection
/// was lost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Barred(Vec<(ClaimId, u64)>);

impl Barred {
    pub(super) const fn new() -> Self {
        Self(Vec::new())
    }

    /// Nothing that was sent for the claim has an effect until then.
    pub(super) fn add(&mut self, claim: ClaimId, until: u64, now: u64) {
        match self.0.iter_mut().find(|(barred, _)| *barred == claim) {
            Some(barred) => barred.1 = barred.1.max(until),
            None if until > now => self.0.push((claim, until)),
            None => {}
        }
    }

    /// Lets go of what can't come any more.
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
