//! The kinds of lock, each a small handle over the engine.

mod fair;
mod multi;
mod mutex;
pub(crate) mod reentrant;
mod rw;
mod semaphore;

pub use fair::Fair;
pub use multi::Multi;
pub use mutex::Mutex;
pub use reentrant::Reentrant;
pub use rw::{ReadWrite, Side};
pub use semaphore::Counting;

use std::{fmt::Debug, sync::Arc, time::Duration};

use async_trait::async_trait;

use crate::{
    Error, Guard, Lock, LockName, LockOptions, Mode,
    engine::{
        Engine,
        acquire::{Wait, take, timed_out},
    },
};

/// What every handle has.
#[derive(Clone, Debug)]
pub(crate) struct Base {
    pub(crate) engine: Arc<Engine>,
    pub(crate) name: LockName,
    pub(crate) options: LockOptions,
}

impl Base {
    /// Takes the lock from the store.
    pub(crate) async fn take(&self, mode: Mode, wait: Wait) -> Result<Option<Guard>, Error> {
        take(&self.engine, &self.name, mode, self.options, 1, None, wait).await
    }
}

/// A handle that can be waited for: from this follow [`Lock`] and the methods of the handles.
pub(crate) trait Takes: Send + Sync + Debug {
    fn base(&self) -> &Base;

    fn take(&self, wait: Wait) -> impl Future<Output = Result<Option<Guard>, Error>> + Send;
}

/// See [`Lock::lock_timeout`].
pub(crate) async fn lock_timeout(lock: &impl Takes, wait: Duration) -> Result<Guard, Error> {
    lock.take(Wait::for_at_most(wait)).await?.ok_or_else(|| timed_out(&lock.base().name))
}

/// See [`Lock::lock`].
pub(crate) async fn lock(lock: &impl Takes) -> Result<Guard, Error> {
    lock_timeout(lock, lock.base().options.wait()).await
}

#[async_trait]
impl<T: Takes> Lock for T {
    fn name(&self) -> &LockName {
        &self.base().name
    }

    async fn try_lock(&self) -> Result<Option<Guard>, Error> {
        self.take(Wait::Try).await
    }

    async fn lock(&self) -> Result<Guard, Error> {
        lock(self).await
    }

    async fn lock_timeout(&self, wait: Duration) -> Result<Guard, Error> {
        lock_timeout(self, wait).await
    }
}
