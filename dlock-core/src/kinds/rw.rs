//! The read-write lock.

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

    acquiring_methods!();
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
