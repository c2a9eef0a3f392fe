//! The fence: the part of a resource that refuses stale tokens.
//!
//! `seen` only grows. `admit` decides and records with one `fetch_max`. With a load and a store,
//! two callers could both pass the load, and the smaller token could be recorded last.

use std::{
    fmt,
    sync::atomic::{AtomicU64, Ordering},
};

use crate::FencingToken;

/// Remembers the largest token that a resource has seen and refuses smaller ones.
///
/// A lease can expire while its holder is stopped. When the holder resumes, it may write before it
/// detects the loss. A resource that checks tokens refuses that write. Keep one `Fence` beside the
/// protected data, and call it in the same critical section as the write. A resource with its own
/// storage (a row, a file) keeps the last token there instead, written together with the data: see
/// the `inventory` example.
///
/// Equal tokens belong to one grant and pass, so a holder may write more than once.
///
/// ```
/// # mod dlock { pub use dlock_core::*; pub mod fencing { pub use dlock_core::*; } }
/// use dlock::{FencingToken, fencing::Fence};
/// # fn main() -> Result<(), dlock_core::Error> {
/// let fence = Fence::new();
/// let (old, new) = (FencingToken::new(7)?, FencingToken::new(8)?);
/// assert!(fence.admit(old).is_ok());
/// assert!(fence.admit(new).is_ok());
/// assert!(fence.admit(old).is_err());
/// # Ok(()) }
/// ```
#[derive(Debug, Default)]
pub struct Fence {
    seen: AtomicU64,
}

impl Fence {
    /// Creates a fence that has seen no token.
    pub const fn new() -> Self {
        Self { seen: AtomicU64::new(0) }
    }

    /// Creates a fence that has seen `token`, for a resource that stores its last token.
    pub const fn starting_at(token: FencingToken) -> Self {
        Self { seen: AtomicU64::new(token.get()) }
    }

    /// Admits the holder of `token` if no larger token has passed.
    ///
    /// # Errors
    /// [`StaleToken`] if a larger token has been seen: the caller's lock was lost, and the write
    /// must not happen.
    pub fn admit(&self, token: FencingToken) -> Result<(), StaleToken> {
        // Acquire and release: the holder of a larger token sees all writes that an earlier holder
        // made before its call.
        let seen = self.seen.fetch_max(token.get(), Ordering::AcqRel);
        if token.get() < seen { Err(StaleToken { token, seen }) } else { Ok(()) }
    }

    /// The largest token that has passed.
    pub fn high_water(&self) -> Option<FencingToken> {
        FencingToken::new(self.seen.load(Ordering::Acquire)).ok()
    }
}

/// A write was refused because a newer holder has written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StaleToken {
    token: FencingToken,
    seen: u64,
}

impl StaleToken {
    /// The token that was refused.
    pub fn token(&self) -> FencingToken {
        self.token
    }
}

impl fmt::Display for StaleToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "fencing token {} is stale, {} has been seen: the lock was lost, take it again",
            self.token, self.seen
        )
    }
}

impl std::error::Error for StaleToken {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_restored_fence_refuses_earlier_tokens() {
        let token = |v| FencingToken::new(v).unwrap();
        let fence = Fence::starting_at(token(10));
        assert!(fence.admit(token(9)).is_err());
        assert!(fence.admit(token(10)).is_ok());
        assert_eq!(fence.high_water(), Some(token(10)));
        assert_eq!(Fence::new().high_water(), None);
    }
}
