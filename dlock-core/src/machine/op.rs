//! Operations of the machine, their results and errors, and the unit of time.

use crate::{ClaimId, ConfigIssue, Error, Mode, Note, Queue};

/// Microseconds on the store's clock.
pub type Micros = u64;

/// An operation on a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Op {
    /// Acquires the lock or waits for it.
    Acquire {
        /// The claim.
        claim: ClaimId,
        /// Its mode.
        mode: Mode,
        /// The length of the lease.
        lease: Micros,
        /// The number of tokens.
        block: u32,
        /// Whether the claim waits if the lock is not free.
        queue: Queue,
        /// The client that a store with notifications notifies of a later grant; 0 for none.
        home: u32,
        /// A text that identifies the client to people, kept for the claim's whole life.
        note: Option<Note>,
    },
    /// Joins the queue and grants nothing, even if the lock is free. So if a store loses this
    /// operation in a crash, it loses a place in a queue, but no grant that a client relies on.
    Join {
        /// The claim.
        claim: ClaimId,
        /// Its mode.
        mode: Mode,
        /// The length of the lease, of the place in the queue and then of the grant.
        lease: Micros,
        /// The number of tokens.
        block: u32,
        /// The client that a store with notifications notifies of the grant; 0 for none.
        home: u32,
        /// A text that identifies the client to people, kept for the claim's whole life.
        note: Option<Note>,
    },
    /// Renews the lease of a grant, perhaps in a weaker mode, or of a place in the queue.
    Renew {
        /// The claim.
        claim: ClaimId,
        /// Its mode from now on.
        mode: Mode,
        /// The length of the lease from now on. It only extends the current one.
        lease: Micros,
        /// Whether it is the last renewal of a held claim, which may shorten the lease. After it,
        /// only another last renewal changes the lease, and only to an earlier end.
        is_last: bool,
    },
    /// Releases a held claim or cancels a waiting one.
    Release {
        /// The claim.
        claim: ClaimId,
        /// The number of tokens that were used; zero if it is not known.
        used: u32,
        /// The time until which the claim can't come back, since an earlier request for it may
        /// still be in flight. Zero if all such requests were answered.
        bar: Micros,
    },
    /// Raises the tokens: later tokens are larger than this one.
    Raise {
        /// The token.
        above: u64,
    },
}

/// The result of an operation for its own claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// The claim holds the lock.
    Granted(Granted),
    /// The claim waits.
    Queued {
        /// The number of entries before it, held and waiting.
        ahead: usize,
    },
    /// The claim did not get the lock and is not in the queue.
    Busy,
    /// The lock has another capacity while other claims hold or wait for it.
    Conflict {
        /// The current capacity of the lock.
        capacity: u32,
    },
    /// The claim does not hold the lock and can't, because no token larger than the last one is
    /// left. A claim of a new acquire is not in the queue either.
    Spent,
    /// The claim was removed.
    Released,
    /// The claim was not found.
    NotFound,
    /// All later tokens are above the requested one.
    Raised,
    /// The operation had no effect: it came after its deadline, or after its claim was barred.
    Late,
}

/// A claim that holds the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Granted {
    /// The claim.
    pub claim: ClaimId,
    /// The first token of its block.
    pub token: u64,
    /// The number of tokens in the block.
    pub block: u32,
    /// The time at which its lease began.
    pub since: Micros,
    /// The client to notify; 0 for none.
    pub home: u32,
}

impl Op {
    /// Returns the claim of the operation, if it has one.
    pub const fn claim(&self) -> Option<ClaimId> {
        match *self {
            Self::Acquire { claim, .. }
            | Self::Join { claim, .. }
            | Self::Renew { claim, .. }
            | Self::Release { claim, .. } => Some(claim),
            Self::Raise { .. } => None,
        }
    }
}

/// The error for [`Outcome::Conflict`]: `asked` uses a name for another
/// kind of lock than the current claims do.
pub fn conflict(asked: Mode, capacity: u32) -> Error {
    let kind = |capacity| match Mode::from_weight(1, capacity) {
        Mode::Permits { of, .. } => format!("a semaphore of {of} permits"),
        _ => "a mutex or read-write lock".to_owned(),
    };
    in_use_as(&format!("{}, and this request is for {}", kind(capacity), kind(asked.capacity())))
}

/// The error for a name that is in use as another kind of lock, or as a semaphore of another size.
/// `what` names that lock.
pub fn in_use_as(what: &str) -> Error {
    Error::config(
        ConfigIssue::Capacity,
        format!(
            "others hold or wait for this name as {what}: use a name for one kind of lock only; a \
             semaphore can get another number of permits once its last holder and waiter have ended"
        ),
    )
}

/// The error for [`Outcome::Spent`]: tokens only grow, and the last token
/// has reached the largest possible one, or almost.
pub fn spent() -> Error {
    Error::config(
        ConfigIssue::Token,
        "no fencing token is left for this name: the last one is close to 2^63 - 1, because tokens \
         were raised or another program wrote it; use another name, or, if no resource has seen \
         such a token, delete the record of this name from the store",
    )
}
