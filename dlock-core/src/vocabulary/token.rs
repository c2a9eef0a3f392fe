//! Fencing tokens.

use std::{fmt, num::NonZeroU64};

use crate::{ConfigIssue, Error};

/// A number that grows with every grant of a name, for ever.
///
/// Send it to the resource with each write; the resource remembers the largest token that it has
/// seen and refuses smaller ones (see [`Fence`](crate::Fence)). So a holder that was stopped past
/// its lease can't overwrite the data of its successor. The idea comes from Lamport's logical
/// clocks, in the form that Burrows, *The Chubby lock service* (OSDI 2006) calls a sequencer.
///
/// Tokens are above zero and below 2^63, so that every database can store them. They are public:
/// never use one as a secret.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FencingToken(NonZeroU64);

impl FencingToken {
    /// The largest token.
    pub const MAX: Self = Self(NonZeroU64::MIN.saturating_add((1 << 63) - 2));

    /// Creates a token of this value.
    ///
    /// # Errors
    /// `Config(Token)` for zero and for 2^63 and above.
    pub fn new(value: u64) -> Result<Self, Error> {
        match NonZeroU64::new(value) {
            Some(value) if value <= Self::MAX.0 => Ok(Self(value)),
            _ => Err(Error::config(
                ConfigIssue::Token,
                format!("fencing token {value} is out of range: use 1 to 2^63 - 1"),
            )),
        }
    }

    /// Returns the value.
    pub const fn get(self) -> u64 {
        self.0.get()
    }

    /// Returns the value as the signed number that databases store.
    pub const fn as_i64(self) -> i64 {
        self.0.get().cast_signed()
    }

    /// Returns the token `n` before it, at least 1.
    pub(crate) const fn minus(self, n: u64) -> Self {
        match NonZeroU64::new(self.0.get().saturating_sub(n)) {
            Some(value) => Self(value),
            None => Self(NonZeroU64::MIN),
        }
    }

    /// Returns the token `n` after it in a block, at most [`MAX`](Self::MAX).
    #[must_use]
    pub const fn plus(self, n: u64) -> Self {
        let sum = self.0.saturating_add(n);
        if sum.get() > Self::MAX.get() { Self::MAX } else { Self(sum) }
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FencingToken({})", self.0)
    }
}

impl From<FencingToken> for u64 {
    fn from(token: FencingToken) -> Self {
        token.get()
    }
}

impl TryFrom<u64> for FencingToken {
    type Error = Error;

    fn try_from(value: u64) -> Result<Self, Error> {
        Self::new(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn range() {
        assert!(FencingToken::new(0).is_err());
        assert!(FencingToken::new(1 << 63).is_err());
        assert_eq!(FencingToken::new((1 << 63) - 1).unwrap(), FencingToken::MAX);
        assert_eq!(FencingToken::MAX.plus(1), FencingToken::MAX);
        assert_eq!(FencingToken::MAX.as_i64(), i64::MAX);
    }
}
