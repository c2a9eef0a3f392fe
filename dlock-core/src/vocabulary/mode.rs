//! How a claim wants to hold a lock.

use crate::{ConfigIssue, Error};

/// How a claim wants to hold a lock.
///
/// One rule of weights covers every kind of lock: a claim has a weight, the lock has a capacity,
/// and the store grants the longest prefix of the queue whose total weight fits. A writer weighs
/// the whole capacity, a reader one, and a semaphore's claim the number of permits that it wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Mode {
    /// Alone: mutex, fair lock, reentrant lock, writer.
    Exclusive,
    /// Together with other shared claims: reader.
    Shared,
    /// `n` of `of` permits of a semaphore.
    Permits {
        /// The number of permits that this claim takes, 1 to `of`.
        n: u32,
        /// The number of permits of the semaphore, 1 to [`Mode::MAX_PERMITS`]. All live claims of a
        /// name must agree on it.
        of: u32,
    },
}

impl Mode {
    /// The largest number of permits of a semaphore.
    pub const MAX_PERMITS: u32 = Self::WHOLE - 1;

    /// The capacity of a lock that is not a semaphore.
    const WHOLE: u32 = 1 << 30;

    /// Creates the mode of `n` of `of` permits.
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

    /// Returns the weight of a claim of this mode.
    pub const fn weight(self) -> u32 {
        match self {
            Self::Exclusive => Self::WHOLE,
            Self::Shared => 1,
            Self::Permits { n, .. } => n,
        }
    }

    /// Returns the capacity of a lock of this mode.
    pub const fn capacity(self) -> u32 {
        match self {
            Self::Exclusive | Self::Shared => Self::WHOLE,
            Self::Permits { of, .. } => of,
        }
    }

    /// Returns the mode of a claim of this weight on a lock of this capacity.
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
