//! The kinds of lock. Each is a small handle over the engine.

/// The methods of a handle that acquire its lock; with `waits` those that wait.
macro_rules! acquiring_methods {
    () => {
        /// Takes the lock if it is free; returns `None` if it is busy. Waits for the store's answer,
        /// but not for a holder. Bind the guard to a variable: a temporary one is dropped at once.
        ///
        /// # Errors
        /// `Unavailable` if the store is unreachable. `Config` and `Unsupported` at once: see
        /// [`Lock`](crate::Lock).
        ///
        /// # Cancel safety
        /// Dropping the future cancels the claim; a lock that was granted meanwhile is released.
        pub async fn try_lock(&self) -> Result<Option<$crate::Guard>, $crate::Error> {
            $crate::kinds::Takes::acquire(self, $crate::support::retry::Wait::Try).await
        }

        acquiring_methods!(waits);
    };
    (waits) => {
        /// Waits for the lock without a limit, unless
        /// [`LockOptions::with_wait`](crate::LockOptions::with_wait) sets one.
        ///
        /// # Errors
        /// `Timeout` after the limit. `Unavailable` if the store is unreachable. `Config` and
        /// `Unsupported` at once: see [`Lock`](crate::Lock).
        ///
        /// # Cancel safety
        /// Dropping the future cancels the claim; a lock that was granted meanwhile is released.
        pub async fn lock(&self) -> Result<$crate::Guard, $crate::Error> {
            $crate::kinds::lock(self).await
        }

        /// Waits for the lock for `wait` at most. Zero is one attempt; `Duration::MAX` is no limit.
        ///
        /// # Errors
        /// `Timeout` after the limit. `Unavailable` if the store is unreachable. `Config` and
        /// `Unsupported` at once: see [`Lock`](crate::Lock).
        ///
        /// # Cancel safety
        /// Dropping the future cancels the claim; a lock that was granted meanwhile is released.
        pub async fn lock_timeout(
            &self,
            wait: std::time::Duration,
        ) -> Result<$crate::Guard, $crate::Error> {
            $crate::kinds::lock_timeout(self, wait).await
        }
    };
}

mod fair;
pub(crate) mod lock;
mod multi;
mod mutex;
mod owners;
mod reentrant;
mod rw;
mod semaphore;
mod shared;

pub use fair::FairMutex;
pub use multi::MultiMutex;
pub use mutex::Mutex;
pub use reentrant::ReentrantMutex;
pub use rw::{RwLock, Side};
pub use semaphore::CountingSemaphore;

use std::{
    fmt::{self, Debug},
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;

use self::{owners::Owners, shared::Shared};
use crate::{
    Error, Guard, Lock, LockName, LockOptions, Mode,
    acquire::take,
    engine::{Engine, hold_ref::HoldRef},
    hold::{Hold, local_queue::LocalQueue},
    support::{labels::Kind, retry::Wait},
};

/// The state that all handles of one [`Locks`](crate::Locks) share.
pub(crate) struct Client {
    pub(crate) engine: Arc<Engine>,
    queues: Shared<LocalQueue<Hold>>,
    owners: Shared<Owners>,
}

impl Client {
    pub(crate) fn new(engine: Arc<Engine>) -> Self {
        Self { engine, queues: Shared::default(), owners: Shared::default() }
    }
}

impl Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.engine.fmt(f)
    }
}

/// The common part of every handle.
#[derive(Clone, Debug)]
pub(crate) struct Base {
    pub(crate) client: Arc<Client>,
    pub(crate) name: LockName,
    pub(crate) options: Arc<LockOptions>,
}

impl Base {
    /// Returns the guard. A wait that ended without a guard is an error, and errors get the lock
    /// and store.
    pub(crate) fn granted(&self, taken: Result<Option<Guard>, Error>) -> Result<Guard, Error> {
        taken
            .and_then(|taken| taken.ok_or_else(|| self.engine().timed_out(&self.name)))
            .map_err(|error| error.with_lock(&self.name).with_store(self.engine().backend.store()))
    }

    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.client.engine
    }

    /// Acquires the lock from the store.
    pub(crate) async fn take(&self, mode: Mode, wait: Wait) -> Result<Option<HoldRef>, Error> {
        let taken = take(self.engine(), &self.name, mode, *self.options, 1, None, wait).await?;
        // Checked again, now that shutdown counts the hold: see `engine`.
        self.engine().check_open()?;
        Ok(taken)
    }
}

/// A handle with waits: [`Lock`] and the methods of the handles build on it.
pub(crate) trait Takes: Send + Sync + Debug {
    fn base(&self) -> &Base;

    fn kind(&self) -> Kind;

    /// Acquires the lock; [`acquire`](Self::acquire) also measures it.
    fn take(&self, wait: Wait) -> impl Future<Output = Result<Option<Guard>, Error>> + Send;

    fn acquire(&self, wait: Wait) -> impl Future<Output = Result<Option<Guard>, Error>> + Send {
        self.base().engine().meter.acquiring(self.kind(), self.take(wait))
    }
}

/// See [`Lock::lock_timeout`].
pub(crate) async fn lock_timeout(lock: &impl Takes, wait: Duration) -> Result<Guard, Error> {
    let base = lock.base();
    let taken = lock.acquire(Wait::for_at_most(wait)).await;
    base.granted(taken)
}

/// See [`Lock::lock`].
pub(crate) fn lock(lock: &impl Takes) -> impl Future<Output = Result<Guard, Error>> + Send {
    lock_timeout(lock, lock.base().options.wait())
}

#[async_trait]
impl<T: Takes> Lock for T {
    fn name(&self) -> &LockName {
        &self.base().name
    }

    async fn try_lock(&self) -> Result<Option<Guard>, Error> {
        self.acquire(Wait::Try).await
    }

    async fn lock(&self) -> Result<Guard, Error> {
        lock(self).await
    }

    async fn lock_timeout(&self, wait: Duration) -> Result<Guard, Error> {
        lock_timeout(self, wait).await
    }
}
