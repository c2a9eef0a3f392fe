//! The states and ends of a held lock.

use std::fmt;

/// Whether a guard still holds its lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum GuardState {
    /// The lock is lost. Work under it must stop.
    Lost,
    /// The last renewal failed; the lease still runs, and the renewal is retried.
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
    /// The lease expired before a renewal succeeded.
    Expired,
    /// The store reported that the claim is not held.
    Revoked,
    /// The store's clock was set forward past the end of the lease.
    ClockStep,
    /// The store has lost the claim with its data, and may have granted the lock to another client
    /// since.
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
