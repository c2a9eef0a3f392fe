//! The read-write lock.

use std::time::Duration;

use super::{Base, Takes};
use crate::{
    Error, Guard, Lock, LockName, Mode, ReadWriteLock,
    support::{labels::Kind, retry::Wait},
};

/// A lock for many readers or one writer, first-come, first-served. Created by
/// [`Locks::rw`](crate::Locks::rw).
#[derive(Clone, Debug)]
pub struct RwLock {
    read: Side,
    write: Side,
}

impl RwLock {
    pub(crate) fn new(base: Base) -> Self {
        Self {
            read: Side { base: base.clone(), mode: Mode::Shared },
            write: Side { base, mode: Mode::Exclusive },
        }
    }

    /// The name of the lock.
    pub fn name(&self) -> &LockName {
        &self.read.base.name
    }

    /// The readers' side.
    pub fn read(&self) -> &Side {
        &self.read
    }

    /// The writer's side; its guard can be [downgraded](Guard::downgrade).
    pub fn write(&self) -> &Side {
        &self.write
    }
}

impl ReadWriteLock for RwLock {
    fn name(&self) -> &LockName {
        self.name()
    }

    fn read(&self) -> &dyn Lock {
        &self.read
    }

    fn write(&self) -> &dyn Lock {
        &self.write
    }
}

/// One side of an [`RwLock`].
#[derive(Clone, Debug)]
pub struct Side {
    base: Base,
    mode: Mode,
}

impl Side {
    /// The name of the lock.
    pub fn name(&self) -> &LockName {
        &self.base.name
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

impl Takes for Side {
    fn base(&self) -> &Base {
        &self.base
    }

    fn kind(&self) -> Kind {
        if self.mode == Mode::Exclusive { Kind::Write } else { Kind::Read }
    }

    async fn take(&self, wait: Wait) -> Result<Option<Guard>, Error> {
        let held = self.base.take(self.mode, wait).await?;
        if let Some(held) = &held
            && self.mode == Mode::Exclusive
        {
            held.mark_writer();
        }
        Ok(held.map(Guard::one))
    }
}
