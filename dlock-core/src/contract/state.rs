//! What a store knows of a name.

use std::time::Duration;

use crate::{ClaimId, FencingToken, Format, Mode, Note};

/// What a store knows of one name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockState {
    /// Who holds it, oldest first.
    pub holders: Vec<ClaimState>,
    /// Who waits, first in line first.
    pub waiters: Vec<ClaimState>,
    /// The largest token that the store remembers to have given out: at least those of the
    /// holders.
    pub last_token: Option<FencingToken>,
}

impl LockState {
    /// Makes one.
    pub fn new(
        holders: Vec<ClaimState>,
        waiters: Vec<ClaimState>,
        last_token: Option<FencingToken>,
    ) -> Self {
        Self { holders, waiters, last_token }
    }

    /// Whether nobody holds it and nobody waits.
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
    /// What it holds or wants.
    pub mode: Mode,
    /// The first token of its grant; `None` while it waits.
    pub token: Option<FencingToken>,
    /// How long it stays without renewal, by the store's clock.
    pub remaining: Duration,
    /// How long ago it was granted, or began to wait, by the store's clock; `None` where the store
    /// does not know. It may be less than that for a while after tokens were raised by hand.
    pub age: Option<Duration>,
    /// Who it is, if its client says so ([`Locks::with_note`](crate::Locks::with_note)) and the
    /// store keeps it.
    pub note: Option<Note>,
    /// The format in which its client writes (`dlock.format`): the first one, unless the record has
    /// another. While one claim has an older format, its program may not read newer ones.
    pub format: Format,
}

impl ClaimState {
    /// A claim of which neither age nor note is known; without a token it waits.
    pub const fn new(
        claim: ClaimId,
        mode: Mode,
        token: Option<FencingToken>,
        remaining: Duration,
    ) -> Self {
        Self { claim, mode, token, remaining, age: None, note: None, format: Format::OLDEST }
    }

    /// The same with this age, if it is known.
    #[must_use]
    pub fn with_age(self, age: impl Into<Option<Duration>>) -> Self {
        Self { age: age.into(), ..self }
    }

    /// The same with this format.
    #[must_use]
    pub fn with_format(self, format: Format) -> Self {
        Self { format, ..self }
    }

    /// The same with this note, if there is one.
    #[must_use]
    pub fn with_note(self, note: impl Into<Option<Note>>) -> Self {
        Self { note: note.into(), ..self }
    }
}
