//! The read-write lock.

use std::time::Duration;

use super::{Base, Takes};
use crate::{
    Error, Guard, Lock, LockName, Mode, ReadWriteLock,
    support::{labels::Kind, retry::Wait},
};

/// A lock for many readers or one writer, first come, first served: what
/// [`Locks::rw`](crate::Locks::rw) makes.
#[derive(Clone, Debug)]
pub struct ReadWrite {
    read: Side,
    write: Side,
}

impl ReadWrite {
    pub(crate) fn new(base: Base) -> Self {
        Self {
            read: Side { base: base.clone(), mode: Mode::Shared },
            write: Side { base, mode: Mode::Exclusive },
        }
    }

    /// The name.
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

impl ReadWriteLock for ReadWrite {
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

/// One side of a [`ReadWrite`] lock.
#[derive(Clone, Debug)]
pub struct Side {
    base: Base,
    mode: Mode,
}

impl Side {
    /// The name.
    pub fn name(&self) -> &LockName {
        &self.base.name
    }

    /// See [`Lock::try_lock`].
    pub async fn try_lock(&self) -> Result<Option<Guard>, Error> {
        self.acquire(Wait::Try).await
    }

    /// See [`Lock::lock`].
    pub async fn lock(&self) -> Result<Guard, Error> {
        super::lock(self).await
    }

    /// See [`Lock::lock_timeout`].
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
