//! The handles of all kinds of lock.

use std::{sync::Arc, time::Duration};

use dlock_core::{CountingSemaphore, Error, FencingToken, Owner, ReentrantMutex, RwLock, Side};

use super::{Guard, runtime::Background};

/// A lock of any kind, created by [`Locks`](super::Locks). It wraps the handle of async code.
///
/// # Errors
/// All methods that wait: as in async code, and `Config(Runtime)` in async code.
#[derive(Clone, Debug)]
pub struct Lock<L> {
    lock: L,
    background: Arc<Background>,
}

impl<L> Lock<L> {
    pub(super) fn new(lock: L, background: &Arc<Background>) -> Self {
        Self { lock, background: Arc::clone(background) }
    }

    /// The handle of async code.
    pub fn as_async(&self) -> &L {
        &self.lock
    }

    fn guard(
        &self,
        taken: impl Future<Output = Result<crate::Guard, Error>>,
    ) -> Result<Guard, Error> {
        Ok(Guard::new(self.background.wait_for(taken)?, &self.background))
    }

    fn if_free(
        &self,
        taken: impl Future<Output = Result<Option<crate::Guard>, Error>>,
    ) -> Result<Option<Guard>, Error> {
        let taken = self.background.wait_for(taken)?;
        Ok(taken.map(|guard| Guard::new(guard, &self.background)))
    }
}

impl<L: crate::kinds::Lock> Lock<L> {
    /// Waits for the lock: see [`crate::kinds::Lock::lock`].
    pub fn lock(&self) -> Result<Guard, Error> {
        self.guard(self.lock.lock())
    }

    /// Waits for the lock for `wait` at most: see [`crate::kinds::Lock::lock_timeout`].
    pub fn lock_timeout(&self, wait: Duration) -> Result<Guard, Error> {
        self.guard(self.lock.lock_timeout(wait))
    }

    /// Takes the lock if it is free: see [`crate::kinds::Lock::try_lock`].
    pub fn try_lock(&self) -> Result<Option<Guard>, Error> {
        self.if_free(self.lock.try_lock())
    }

    /// Takes the lock, runs `work` with the fencing token, and releases the lock.
    ///
    /// Unlike async work, `work` can't be cancelled. If it outlived the lock, the error is `Lost`,
    /// even if only the release reveals the loss, and [`Error::take_output`] returns the outcome.
    /// If the release fails, the outcome is still returned, and the lease frees the lock.
    pub fn with<T>(&self, work: impl FnOnce(FencingToken) -> T) -> Result<T, Error>
    where
        T: Send + 'static,
    {
        let guard = self.lock()?;
        let outcome = work(guard.token());
        guard.finish(outcome)
    }
}

impl Lock<RwLock> {
    /// The readers' side.
    #[must_use]
    pub fn read(&self) -> Lock<Side> {
        Lock::new(self.lock.read().clone(), &self.background)
    }

    /// The writer's side.
    #[must_use]
    pub fn write(&self) -> Lock<Side> {
        Lock::new(self.lock.write().clone(), &self.background)
    }
}

impl Lock<CountingSemaphore> {
    /// Waits for `n` permits: see [`crate::kinds::Semaphore::acquire_many`].
    pub fn acquire_many(&self, n: u32) -> Result<Guard, Error> {
        self.guard(self.lock.acquire_many(n))
    }

    /// Waits for `n` permits for `wait` at most: see
    /// [`crate::kinds::Semaphore::acquire_many_timeout`].
    pub fn acquire_many_timeout(&self, n: u32, wait: Duration) -> Result<Guard, Error> {
        self.guard(self.lock.acquire_many_timeout(n, wait))
    }

    /// Takes `n` permits if they are free: see [`crate::kinds::Semaphore::try_acquire_many`].
    pub fn try_acquire_many(&self, n: u32) -> Result<Option<Guard>, Error> {
        self.if_free(self.lock.try_acquire_many(n))
    }

    /// Waits for a permit.
    pub fn acquire(&self) -> Result<Guard, Error> {
        self.acquire_many(1)
    }

    /// Takes a permit if one is free.
    pub fn try_acquire(&self) -> Result<Option<Guard>, Error> {
        self.try_acquire_many(1)
    }
}

impl Lock<ReentrantMutex> {
    /// Waits for the lock as this owner: see [`crate::kinds::ReentrantLock::lock_as`].
    pub fn lock_as(&self, owner: &Owner) -> Result<Guard, Error> {
        self.guard(self.lock.lock_as(owner))
    }

    /// Waits for the lock for `wait` at most: see [`crate::kinds::ReentrantLock::lock_timeout_as`].
    pub fn lock_timeout_as(&self, owner: &Owner, wait: Duration) -> Result<Guard, Error> {
        self.guard(self.lock.lock_timeout_as(owner, wait))
    }

    /// Takes the lock as this owner if it is free: see
    /// [`crate::kinds::ReentrantLock::try_lock_as`].
    pub fn try_lock_as(&self, owner: &Owner) -> Result<Option<Guard>, Error> {
        self.if_free(self.lock.try_lock_as(owner))
    }

    /// The number of live guards of this owner.
    #[must_use]
    pub fn hold_count(&self, owner: &Owner) -> usize {
        self.lock.hold_count(owner)
    }
}
