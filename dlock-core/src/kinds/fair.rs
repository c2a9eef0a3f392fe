//! The fair lock.

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

    acquiring_methods!();
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
