//! The counting semaphore.

use std::time::Duration;

use async_trait::async_trait;

use super::Base;
use crate::{
    Error, Guard, LockName, Mode, Semaphore,
    support::{labels::Kind, retry::Wait},
};

/// A number of permits, first-come, first-served. Created by
/// [`Locks::semaphore`](crate::Locks::semaphore).
#[derive(Clone, Debug)]
pub struct CountingSemaphore {
    pub(crate) base: Base,
    pub(crate) permits: u32,
}

impl CountingSemaphore {
    /// The name of the semaphore.
    pub fn name(&self) -> &LockName {
        &self.base.name
    }

    /// The number of permits.
    pub fn permits(&self) -> u32 {
        self.permits
    }

    /// Takes a permit if one is free and nobody waits for it; returns `None` if it is busy.
    ///
    /// # Errors
    /// `Unavailable` if the store is unreachable. `Config` and `Unsupported` at once: see
    /// [`Semaphore`](crate::Semaphore).
    ///
    /// # Cancel safety
    /// Dropping the future cancels the claim; a lock that was granted meanwhile is released.
    pub async fn try_acquire(&self) -> Result<Option<Guard>, Error> {
        self.take(1, Wait::Try).await
    }

    /// Waits for a permit for the time that the options set.
    ///
    /// # Errors
    /// `Timeout` after the limit. `Unavailable` if the store is unreachable. `Config` and
    /// `Unsupported` at once: see [`Semaphore`](crate::Semaphore).
    ///
    /// # Cancel safety
    /// Dropping the future cancels the claim; a lock that was granted meanwhile is released.
    pub async fn acquire(&self) -> Result<Guard, Error> {
        self.acquire_many(1).await
    }

    /// Takes `n` permits if that many are free and nobody waits for them; returns `None` if it is
    /// busy.
    ///
    /// # Errors
    /// `Unavailable` if the store is unreachable. `Config` and `Unsupported` at once: see
    /// [`Semaphore`](crate::Semaphore).
    ///
    /// # Cancel safety
    /// Dropping the future cancels the claim; a lock that was granted meanwhile is released.
    pub async fn try_acquire_many(&self, n: u32) -> Result<Option<Guard>, Error> {
        self.take(n, Wait::Try).await
    }

    /// Waits for `n` permits for the time that the options set. Claims for fewer permits do not
    /// overtake it.
    ///
    /// # Errors
    /// `Timeout` after the limit. `Unavailable` if the store is unreachable. `Config` and
    /// `Unsupported` at once: see [`Semaphore`](crate::Semaphore).
    ///
    /// # Cancel safety
    /// Dropping the future cancels the claim; a lock that was granted meanwhile is released.
    pub async fn acquire_many(&self, n: u32) -> Result<Guard, Error> {
        self.acquire_many_timeout(n, self.base.options.wait()).await
    }

    /// Waits for `n` permits for `wait` at most. Zero is one attempt; `Duration::MAX` is no limit.
    ///
    /// # Errors
    /// `Timeout` after the limit. `Unavailable` if the store is unreachable. `Config` and
    /// `Unsupported` at once: see [`Semaphore`](crate::Semaphore).
    ///
    /// # Cancel safety
    /// Dropping the future cancels the claim; a lock that was granted meanwhile is released.
    pub async fn acquire_many_timeout(&self, n: u32, wait: Duration) -> Result<Guard, Error> {
        let taken = self.take(n, Wait::for_at_most(wait)).await;
        self.base.granted(taken)
    }

    async fn take(&self, n: u32, wait: Wait) -> Result<Option<Guard>, Error> {
        let mode =
            Mode::permits(n, self.permits).map_err(|error| error.with_lock(&self.base.name))?;
        let taken = self.base.take(mode, wait);
        let taken = self.base.engine().meter.acquiring(Kind::Semaphore, taken).await;
        Ok(taken?.map(Guard::one))
    }
}

#[async_trait]
impl Semaphore for CountingSemaphore {
    fn name(&self) -> &LockName {
        self.name()
    }

    fn permits(&self) -> u32 {
        self.permits
    }

    async fn try_acquire_many(&self, n: u32) -> Result<Option<Guard>, Error> {
        self.try_acquire_many(n).await
    }

    async fn acquire_many(&self, n: u32) -> Result<Guard, Error> {
        self.acquire_many(n).await
    }

    async fn acquire_many_timeout(&self, n: u32, wait: Duration) -> Result<Guard, Error> {
        self.acquire_many_timeout(n, wait).await
    }
}
