//! What a claim wants of a lock.

use crate::{ConfigIssue, Error};

/// What a claim wants of a lock.
///
/// Every kind of lock is one rule over weights: a claim has a weight, the lock a capacity, and
/// the store grants the longest prefix of the queue whose weights together fit. A writer weighs
/// the whole capacity, a reader one, a semaphore's claim as many as the permits it asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Mode {
    /// Alone: mutex, fair lock, reentrant lock, writer.
    Exclusive,
    /// Together with other shared claims: reader.
    Shared,
    /// `n` of `of` permits of a semaphore.
    Permits {
        /// How many permits this claim takes, 1 to `of`.
        n: u32,
        /// How many permits there are, 1 to [`Mode::MAX_PERMITS`]. All claims of a name that are
        /// alive at one time must agree on it.
        of: u32,
    },
}

impl Mode {
    /// The most permits that a semaphore can have.
    pub const MAX_PERMITS: u32 = Self::WHOLE - 1;

    /// The capacity of a lock that is not a semaphore.
    const WHOLE: u32 = 1 << 30;

    /// `n` of `of` permits.
    ///
    /// # Errors
    /// `Config(Permits)` unless 1 <= `n` <= `of` <= [`MAX_PERMITS`](Self::MAX_PERMITS).
    pub fn permits(n: u32, of: u32) -> Result<Self, Error> {
        if of == 0 || of > Self::MAX_PERMITS {
            return Err(Error::config(
                ConfigIssue::Permits,
                format!("a semaphore can't have {of} permits: use 1 to {}", Self::MAX_PERMITS),
            ));
        }
        if n == 0 || n > of {
            return Err(Error::config(
                ConfigIssue::Permits,
                format!("{n} of {of} permits can never be granted: use 1 to {of}"),
            ));
        }
        Ok(Self::Permits { n, of })
    }

    /// The weight of a claim of this mode.
    pub const fn weight(self) -> u32 {
        match self {
            Self::Exclusive => Self::WHOLE,
            Self::Shared => 1,
            Self::Permits { n, .. } => n,
        }
    }

    /// The capacity of the lock that this mode speaks of.
    pub const fn capacity(self) -> u32 {
        match self {
            Self::Exclusive | Self::Shared => Self::WHOLE,
            Self::Permits { of, .. } => of,
        }
    }

    /// The mode of a claim of this weight on a lock of this capacity.
    pub const fn from_weight(weight: u32, capacity: u32) -> Self {
        match capacity {
            Self::WHOLE if weight == Self::WHOLE => Self::Exclusive,
            Self::WHOLE => Self::Shared,
            of => Self::Permits { n: weight, of },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_round_trip() {
        for mode in [Mode::Exclusive, Mode::Shared, Mode::permits(2, 5).unwrap()] {
            assert_eq!(Mode::from_weight(mode.weight(), mode.capacity()), mode);
        }
    }

    #[test]
    fn impossible_permits_are_refused() {
        for (n, of) in [(0, 1), (2, 1), (1, 0), (1, 1 << 30)] {
            assert!(Mode::permits(n, of).is_err(), "{n} of {of}");
        }
    }
}
