//! A case, and what it needs from a store.

use std::{fmt, pin::Pin};

use dlock_core::{Fairness, Fencing, Guarantees, Notes, Permits, Scope};

use crate::{Verdict, context::Cx};

/// One claim about a store, and the code that proves it.
#[derive(Clone, Copy)]
pub struct Case {
    pub(crate) group: &'static str,
    pub(crate) name: &'static str,
    pub(crate) needs: &'static [Need],
    pub(crate) run: fn(Cx) -> Running,
}

pub(crate) type Running = Pin<Box<dyn Future<Output = Verdict>>>;

impl Case {
    /// The group and the claim: `fencing::token_grows_after_expiry`.
    pub fn name(&self) -> String {
        format!("{}::{}", self.group, self.name)
    }
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name())
    }
}

/// A need of a case. If a store rules it out, the case is ignored with the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// The store grants locks in the order of arrival.
    Fifo,
    /// The store has no such order, so a request for it must be refused.
    NoFifo,
    /// The store has semaphores.
    Permits,
    /// The store has no semaphores, so a request for one must be refused.
    NoPermits,
    /// The store keeps notes.
    Notes,
    /// The store keeps no notes, so no note must be seen.
    NoNotes,
    /// The store has fencing tokens.
    Tokens,
    /// Other processes can reach the store.
    Processes,
}

impl Need {
    /// Returns why the store does not meet this need, if it does not.
    pub(crate) fn missing_in(self, given: &Guarantees, address: Option<&str>) -> Option<String> {
        let met = match self {
            Self::Fifo => given.fairness >= Fairness::Fifo,
            Self::NoFifo => given.fairness < Fairness::Fifo,
            Self::Permits => given.permits >= Permits::Counted,
            Self::NoPermits => given.permits < Permits::Counted,
            Self::Notes => given.notes >= Notes::Kept,
            Self::NoNotes => given.notes < Notes::Kept,
            Self::Tokens => given.fencing > Fencing::None,
            Self::Processes => given.scope > Scope::Process && address.is_some(),
        };
        let (what, is) = match self {
            Self::Fifo | Self::NoFifo => ("order of grants", given.fairness.to_string()),
            Self::Permits | Self::NoPermits => ("semaphores", given.permits.to_string()),
            Self::Notes | Self::NoNotes => ("notes", given.notes.to_string()),
            Self::Tokens => ("fencing tokens", given.fencing.to_string()),
            Self::Processes if address.is_none() => ("reach", "no address for a child".to_owned()),
            Self::Processes => ("reach", given.scope.to_string()),
        };
        (!met).then(|| format!("{what}: {is}"))
    }
}
