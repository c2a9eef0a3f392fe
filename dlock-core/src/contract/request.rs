//! What the verbs of a backend are asked, and what they answer.

use std::time::Duration;

use crate::{Claim, ClaimId, FencingToken, Instant, LockName, Mode, Note};

/// What a claim asks of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AcquireRequest {
    /// The lock.
    pub name: LockName,
    /// The acquisition.
    pub claim: ClaimId,
    /// What it wants.
    pub mode: Mode,
    /// How long the grant lasts without renewal, by the store's clock; also how long the place in
    /// the queue lasts without a sign of life.
    pub lease: Duration,
    /// What to do when the lock is not free.
    pub queue: Queue,
    /// How many consecutive tokens to reserve, at least 1.
    pub tokens: u32,
    /// Who asks, for people: kept with the claim as long as it is there, where the store has a place
    /// for it ([`Notes::Kept`](crate::Notes)). No renewal changes it.
    pub note: Option<Note>,
}

impl AcquireRequest {
    /// A new claim that waits in line, for one token and without a note.
    pub fn new(name: LockName, mode: Mode, lease: Duration) -> Self {
        Self {
            name,
            claim: ClaimId::random(),
            mode,
            lease,
            queue: Queue::Enqueue,
            tokens: 1,
            note: None,
        }
    }

    /// The same for this claim.
    #[must_use]
    pub fn with_claim(self, claim: ClaimId) -> Self {
        Self { claim, ..self }
    }

    /// The same with this mode.
    #[must_use]
    pub fn with_mode(self, mode: Mode) -> Self {
        Self { mode, ..self }
    }

    /// The same with this lease.
    #[must_use]
    pub fn with_lease(self, lease: Duration) -> Self {
        Self { lease, ..self }
    }

    /// The same with this answer to a lock that is not free.
    #[must_use]
    pub fn with_queue(self, queue: Queue) -> Self {
        Self { queue, ..self }
    }

    /// The same with a block of so many tokens, at least 1.
    #[must_use]
    pub fn with_tokens(self, tokens: u32) -> Self {
        Self { tokens, ..self }
    }

    /// The same with this note, or with none.
    #[must_use]
    pub fn with_note(self, note: impl Into<Option<Note>>) -> Self {
        Self { note: note.into(), ..self }
    }

    /// The claim of this request, of whose tokens nothing is known.
    pub fn as_claim(&self) -> Claim {
        Claim::new(self.name.clone(), self.claim)
    }
}

/// What a claim does when the lock is not free.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Queue {
    /// Wait in line.
    Enqueue,
    /// Leave no trace.
    FailIfBusy,
}

/// The answer to an acquire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Acquired {
    /// The lock is the claim's.
    Granted(Grant),
    /// The claim waits in line.
    Queued,
    /// The lock is not free and the claim left no trace.
    Busy,
}

/// A lock that is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Grant {
    /// The first token of the block.
    pub token: FencingToken,
    /// How many tokens the block has, at least 1.
    pub tokens: u32,
    /// An instant of the holder's clock at or before the start of the lease by the store's clock:
    /// when the request was sent, or later by what the store's clock says to have passed between
    /// an operation and the grant.
    pub since: Instant,
}

impl Grant {
    /// A grant of a block of tokens, whose lease began at `since` or later.
    pub const fn new(token: FencingToken, tokens: u32, since: Instant) -> Self {
        Self { token, tokens, since }
    }
}

/// A lease to start anew.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Renewal {
    /// The claim.
    pub claim: Claim,
    /// The mode to hold it in: the same as before or weaker.
    pub mode: Mode,
    /// The new length of the lease from now on.
    pub lease: Duration,
    /// The first token of the grant, by which a store that has lost its data can tell that it has;
    /// `None`: the client does not know.
    pub token: Option<FencingToken>,
}

impl Renewal {
    /// A renewal by a client that does not know the token of the grant.
    pub const fn new(claim: Claim, mode: Mode, lease: Duration) -> Self {
        Self { claim, mode, lease, token: None }
    }

    /// The same with the first token of the grant, if it is known.
    #[must_use]
    pub fn with_token(self, token: impl Into<Option<FencingToken>>) -> Self {
        Self { token: token.into(), ..self }
    }
}

/// The answer to a renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Renewed {
    /// The claim is held for another lease, counted from no earlier than the call.
    Kept,
    /// The claim is not held.
    Lost,
    /// The claim is not held, and the largest token that the store remembers of the name, if it
    /// does, is below the renewal's: it has lost what it had acknowledged.
    Forgotten,
    /// The store could not tell for this claim, though it could for others of the same call. The
    /// core asks again while the lease lasts.
    Unknown,
}

/// The answer to a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Released {
    /// The claim was in the store and is not any more.
    Released,
    /// The claim was not in the store: its lease had ended before.
    AlreadyLost,
}
