//! Owners of reentrant locks.

use std::fmt;

use rand::random;

/// The owner of a reentrant lock: a value that the program passes around, never a thread or a task.
///
/// A task moves between threads, and one task may act for two callers, so neither identifies the
/// owner that may enter again. Clones are the same owner.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Owner(u128);

impl Owner {
    /// Creates an owner that differs from every other.
    #[expect(clippy::new_without_default, reason = "each call makes another owner")]
    pub fn new() -> Self {
        Self(random())
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Owner({:032x})", self.0)
    }
}
