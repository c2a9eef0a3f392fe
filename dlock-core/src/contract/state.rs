//! The state of a name in a store.

use std::time::Duration;

use crate::{ClaimId, FencingToken, Mode, Note};

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
    /// The claim.
    pub claim: ClaimId,
    /// The mode in which it holds or wants the lock.
    pub mode: Mode,
    /// The first token of its grant; `None` while it waits.
    pub token: Option<FencingToken>,
    /// The time until it expires without renewal, by the store's clock; `Duration::MAX` if it never
    /// does, because another program has written it without a lease.
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
