//! The fair lock.

use super::{Base, Takes, lock_methods};
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

    lock_methods!();
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
