//! The rules, and what is violated without each of them.

use super::NOBODYS;
use crate::check::{EXCLUSION, WAKES};

/// The rules of the protocol. Each can be switched off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Rule {
    /// A creation writes to the epoch, which is deleted after an unknown outcome.
    Epoch,
    /// The client searches for a cancelled claim too, and deletes its node.
    SeeThrough,
    /// The node that a search finds must belong to the current session.
    OwnerCheck,
    /// If the node to watch is already deleted, the client reads the queue again.
    Recheck,
    /// A client that is granted the lock because another node ended checks that its own node
    /// exists.
    OwnNode,
}

/// The rules, and the property that is violated without each of them.
pub const RULES: [(Rule, &str); 6] = [
    (Rule::Epoch, NOBODYS),
    (Rule::Epoch, WAKES),
    (Rule::SeeThrough, NOBODYS),
    (Rule::OwnerCheck, EXCLUSION),
    (Rule::Recheck, WAKES),
    (Rule::OwnNode, EXCLUSION),
];
