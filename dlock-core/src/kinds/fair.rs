//! The fair lock.

use std::time::Duration;

use super::{Base, Takes};
use crate::{
    Error, FairLock, Guard, LockName, Mode,
    support::{labels::Kind, retry::Wait},
};

/// A lock that is granted in the order in which claims reached the store: what
/// [`Locks::fair`](crate::Locks::fair) makes.
///
/// Each hold goes through the store, so it is slower than a [`Mutex`](super::Mutex) that is
/// contended within a process, and as fast otherwise.
#[derive(Clone, Debug)]
pub struct Fair(pub(crate) Base);

impl Fair {
    /// The name.
    pub fn name(&self) -> &LockName {
        &self.0.name
    }

    /// See [`Lock::try_lock`](crate::Lock::try_lock).
    pub async fn try_lock(&self) -> Result<Option<Guard>, Error> {
        self.acquire(Wait::Try).await
    }

    /// See [`Lock::lock`](crate::Lock::lock).
    pub async fn lock(&self) -> Result<Guard, Error> {
        super::lock(self).await
    }

    /// See [`Lock::lock_timeout`](crate::Lock::lock_timeout).
    pub async fn lock_timeout(&self, wait: Duration) -> Result<Guard, Error> {
        super::lock_timeout(self, wait).await
    }
}

impl Takes for Fair {
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

impl FairLock for Fair {}
