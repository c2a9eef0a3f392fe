//! The requests and answers of the verbs of a backend, and the state of a name.

use std::time::Duration;

use crate::{Claim, ClaimId, FencingToken, Instant, LockName, Mode, Note};

/// A claim's request to the store.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AcquireRequest {
    /// The lock.
    pub name: LockName,
    /// The claim that makes the request.
    pub claim: ClaimId,
    /// The mode in which the claim wants the lock.
    pub mode: Mode,
    /// The length of the grant without renewal, by the store's clock; also the length of a place in
    /// the queue without a heartbeat.
    pub lease: Duration,
    /// The action of the claim if the lock is not free.
    pub queue: Queue,
    /// The number of consecutive tokens to reserve, at least 1. The grant may have fewer.
    pub tokens: u32,
    /// A text that identifies the client to people. It is kept with the claim for the claim's whole
    /// life, if the store supports notes ([`Notes::Kept`](crate::Notes)). Renewals do not change
    /// it.
    pub note: Option<Note>,
}

impl AcquireRequest {
    /// Creates a request of a new claim that queues, for one token and without a note.
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

    /// Returns the request with this claim.
    #[must_use]
    pub fn with_claim(self, claim: ClaimId) -> Self {
        Self { claim, ..self }
    }

    /// Returns the request with this mode.
    #[must_use]
    pub fn with_mode(self, mode: Mode) -> Self {
        Self { mode, ..self }
    }

    /// Returns the request with this lease.
    #[must_use]
    pub fn with_lease(self, lease: Duration) -> Self {
        Self { lease, ..self }
    }

    /// Returns the request with this behaviour if the lock is not free.
    #[must_use]
    pub fn with_queue(self, queue: Queue) -> Self {
        Self { queue, ..self }
    }

    /// Returns the request with a block of `tokens` tokens, at least 1.
    #[must_use]
    pub fn with_tokens(self, tokens: u32) -> Self {
        Self { tokens, ..self }
    }

    /// Returns the request with this note, or without one.
    #[must_use]
    pub fn with_note(self, note: impl Into<Option<Note>>) -> Self {
        Self { note: note.into(), ..self }
    }

    /// Returns the claim of this request, without information about its tokens.
    pub fn as_claim(&self) -> Claim {
        Claim::new(self.name.clone(), self.claim)
    }
}

/// The action of a claim if the lock is not free.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Queue {
    /// The claim joins the queue.
    Enqueue,
    /// The claim leaves no trace.
    FailIfBusy,
}

/// The answer to an acquire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Acquired {
    /// The claim holds the lock.
    Granted(Grant),
    /// The claim waits in the queue.
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
    /// The number of tokens in the block, at least 1.
    pub tokens: u32,
    /// An instant of the holder's clock at or before the start of the lease by the store's clock.
    /// It is the time at which the request was sent, or later by the time that, according to the
    /// store's clock, passed between an operation and the grant.
    pub since: Instant,
}

impl Grant {
    /// Creates a grant of a block of tokens, whose lease began at `since` or later.
    pub const fn new(token: FencingToken, tokens: u32, since: Instant) -> Self {
        Self { token, tokens, since }
    }
}

/// A request to renew a lease.
///
/// A client that gets no answer sends another renewal, over another connection, and the two may
/// arrive in any order. So a renewal only extends a lease, except the last one of a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Renewal {
    /// The claim.
    pub claim: Claim,
    /// The mode in which to hold the claim: the same as before or a weaker one.
    pub mode: Mode,
    /// The length of the new lease, from now on.
    pub lease: Duration,
    /// The first token of the grant that it renews, by which a store can detect that it has lost its
    /// data. `None` if the client does not know it.
    pub token: Option<FencingToken>,
    /// Whether this is the last renewal of the claim, which has no holder any more. It sets the
    /// lease, also to a shorter one, and later requests do not extend it.
    pub is_last: bool,
    /// The time for which the caller waits for the answer: a third of the lease of the holder, which
    /// excludes the lock-delay. A backend that repeats a renewal, or waits for a connection that may
    /// be dead, gives up earlier.
    pub answer_within: Duration,
}

impl Renewal {
    /// Creates a renewal by a client that does not know the token of the grant. The caller waits
    /// for the answer for a third of the lease.
    pub const fn new(claim: Claim, mode: Mode, lease: Duration) -> Self {
        let answer_within = match lease.checked_div(3) {
            Some(third) => third,
            None => lease,
        };
        Self { claim, mode, lease, token: None, is_last: false, answer_within }
    }

    /// Returns the renewal of a caller that waits for the answer for this time.
    #[must_use]
    pub fn with_answer_within(self, answer_within: Duration) -> Self {
        Self { answer_within, ..self }
    }

    /// Returns the renewal with the first token of the grant, if it is known.
    #[must_use]
    pub fn with_token(self, token: impl Into<Option<FencingToken>>) -> Self {
        Self { token: token.into(), ..self }
    }

    /// Returns the renewal as the last one of its claim.
    #[must_use]
    pub fn as_last(self) -> Self {
        Self { is_last: true, ..self }
    }
}

/// The answer to a renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Renewed {
    /// The claim is held for another lease, which began at the time of the call or later. After the
    /// [last renewal](Renewal::is_last) of a claim, the answer to an earlier one means only that the
    /// claim is held.
    Kept,
    /// The claim is not held. It may wait in the queue, for example after the store has lost the
    /// grant.
    Lost,
    /// The claim is not held, and the store's last token of the name, if it has one, is smaller
    /// than the renewal's, or it is held with another token than the renewal's: the store has lost
    /// data that it had acknowledged.
    Forgotten,
    /// The store could not determine the state of this claim, although it answered for others of
    /// the same call. The core retries while the lease lasts.
    Unknown,
}

/// The answer to a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Released {
    /// The claim was in the store, and the store removed it.
    Released,
    /// The claim was not in the store: its lease had expired before.
    AlreadyLost,
}

/// The state of one name in a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockState {
    /// The holders, oldest first.
    pub holders: Vec<ClaimState>,
    /// The waiters, in the order of the queue.
    pub waiters: Vec<ClaimState>,
    /// The largest token that the store remembers of the name.
    ///
    /// Contract: it is not smaller than any token that was granted under this name, also after that
    /// claim has ended and the store has deleted the record of the name. A store that deletes
    /// records at once keeps the largest token of all of them, and shows it for each name without a
    /// record. It may become smaller, or `None`, only when the store forgets the name: no earlier
    /// than one lease after the last claim has ended. Before that, a smaller value means that the
    /// store has lost data ([`Renewed::Forgotten`](crate::Renewed)). If claims belong to a session
    /// ([`OrphanRelease::SessionEnd`](crate::OrphanRelease)), it is not smaller than the tokens of
    /// the holders.
    pub last_token: Option<FencingToken>,
}

impl LockState {
    /// Creates a state.
    pub fn new(
        holders: Vec<ClaimState>,
        waiters: Vec<ClaimState>,
        last_token: Option<FencingToken>,
    ) -> Self {
        Self { holders, waiters, last_token }
    }

    /// Returns whether the name has neither holders nor waiters.
    pub fn is_free(&self) -> bool {
        self.holders.is_empty() && self.waiters.is_empty()
    }
}

/// One claim as the store sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClaimState {
    /// The claim; [`ClaimId::UNKNOWN`] if the store does not know it.
    pub claim: ClaimId,
    /// The mode in which it holds or wants the lock.
    pub mode: Mode,
    /// The first token of its grant; `None` while it waits, or if the store does not know it.
    pub token: Option<FencingToken>,
    /// The time until it expires without renewal, by the store's clock; `Duration::MAX` if it never
    /// does, because another program has written it without a lease. If claims belong to a session
    /// ([`OrphanRelease::SessionEnd`](crate::OrphanRelease)), only the client of a claim knows the
    /// end of its lease, and others may see the whole lease.
    pub remaining: Duration,
    /// The time since the grant, or since the claim began to wait, by the store's clock; `None` if
    /// the store does not know it. After an operator has raised tokens, it may be too short for a
    /// while.
    pub age: Option<Duration>,
    /// The text that its client has set ([`Note`]), if the store keeps notes.
    pub note: Option<Note>,
}

impl ClaimState {
    /// Creates a claim with unknown age and note; without a token it waits.
    pub const fn new(
        claim: ClaimId,
        mode: Mode,
        token: Option<FencingToken>,
        remaining: Duration,
    ) -> Self {
        Self { claim, mode, token, remaining, age: None, note: None }
    }

    /// Returns the claim with this age, if it is known.
    #[must_use]
    pub fn with_age(self, age: impl Into<Option<Duration>>) -> Self {
        Self { age: age.into(), ..self }
    }

    /// Returns the claim with this note, if it has one.
    #[must_use]
    pub fn with_note(self, note: impl Into<Option<Note>>) -> Self {
        Self { note: note.into(), ..self }
    }
}
