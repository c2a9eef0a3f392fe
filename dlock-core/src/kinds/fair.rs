//! The fair lock.

use std::time::Duration;

use super::{Base, Takes};
use crate::{
    Error, FairLock, Guard, LockName, Mode,
    support::{labels::Kind, retry::Wait},
};

/// A lock that is granted in the order in which claims reached the store. Created by
/// [`Locks::fair`](crate::Locks::fair).
///
/// Each hold uses the store. So it is slower than a [`Mutex`](super::Mutex) if tasks of one process
/// contend for it, and equally fast otherwise.
#[derive(Clone, Debug)]
pub struct FairMutex(pub(crate) Base);

impl FairMutex {
    /// The name of the lock.
    pub fn name(&self) -> &LockName {
        &self.0.name
    }

    /// Takes the lock if it is free; returns `None` if it is busy. Waits for the store's answer,
    /// but not for a holder. Bind the guard to a variable: a temporary one is dropped at once.
    ///
    /// # Errors
    /// `Unavailable` if the store is unreachable. `Config` and `Unsupported` at once: see
    /// [`Lock`](crate::Lock).
    ///
    /// # Cancel safety
    /// Dropping the future cancels the claim; a lock that was granted meanwhile is released.
    pub async fn try_lock(&self) -> Result<Option<Guard>, Error> {
        self.acquire(Wait::Try).await
    }

    /// Waits for the lock without a limit, unless
    /// [`LockOptions::with_wait`](crate::LockOptions::with_wait) sets one.
    ///
    /// # Errors
    /// `Timeout` after the limit. `Unavailable` if the store is unreachable. `Config` and
    /// `Unsupported` at once: see [`Lock`](crate::Lock).
    ///
    /// # Cancel safety
    /// Dropping the future cancels the claim; a lock that was granted meanwhile is released.
    pub async fn lock(&self) -> Result<Guard, Error> {
        super::lock(self).await
    }

    /// Waits for the lock for `wait` at most. Zero is one attempt; `Duration::MAX` is no limit.
    ///
    /// # Errors
    /// `Timeout` after the limit. `Unavailable` if the store is unreachable. `Config` and
    /// `Unsupported` at once: see [`Lock`](crate::Lock).
    ///
    /// # Cancel safety
    /// Dropping the future cancels the claim; a lock that was granted meanwhile is released.
    pub async fn lock_timeout(&self, wait: Duration) -> Result<Guard, Error> {
        super::lock_timeout(self, wait).await
    }
}

impl Takes for FairMutex {
    fn base(&self) -> &Base {
        &self.0
    }

    fn kind(&self) -> Kind {
        Kind::Fair
    }

    async fn take(&self, wait: Wait) -> Result<Option<Guard>, Error> {
        Ok(self.0.take(Mode::Exclusive, wait).await?.map(Guard::one))
    }
}

impl FairLock for FairMutex {}
