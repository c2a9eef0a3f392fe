//! What becomes of a lock that is held.

use std::fmt;

/// Whether a guard still protects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum GuardState {
    /// The lock is lost. Work under it must stop.
    Lost,
    /// The last renewal failed; the lease still runs and renewal is tried again.
    Doubtful,
    /// The lock is held.
    Held,
}

/// How a hold ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Ended {
    /// The guard was released or dropped.
    Released,
    /// The lease ran out before a renewal came through.
    Expired,
    /// The store says that the claim is not held any more.
    Revoked,
    /// The store's clock was set forward past the end of the lease.
    ClockStep,
    /// The store has lost the claim with its data: it may have let somebody else in since it did.
    StoreReset,
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Released => "it was released",
            Self::Expired => "its lease ended before it could be renewed",
            Self::Revoked => "the store does not know the claim any more",
            Self::ClockStep => "the store's clock was set forward past the end of its lease",
            Self::StoreReset => "the store has lost its data, and the claim with it",
        })
    }
}
