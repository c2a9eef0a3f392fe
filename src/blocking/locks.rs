//! The main type of a program without a runtime.

use std::{sync::Arc, time::Duration};

use dlock_core::{
    CountingSemaphore, Error, FairMutex, Health, IntoName, LockOptions, LockState, MultiMutex,
    Mutex, ReentrantMutex, RwLock,
};

use super::{Lock, runtime::Background};
use crate::ConnectOptions;

/// Creates locks by name, as [`crate::Locks`] does for async code. Clones and views share one
/// connection to the store and one background thread.
///
/// # Errors
/// As [`crate::Locks`], and `Config(Runtime)` from every method that waits in async code.
#[derive(Clone, Debug)]
pub struct Locks {
    locks: crate::Locks,
    background: Arc<Background>,
}

/// Connects to the store that `url` names: see [`crate::connect()`].
///
/// # Errors
/// As for that function, but `Config(Runtime)` in async code, or if no thread can be started.
pub fn connect(url: &str) -> Result<Locks, Error> {
    connect_with(url, ConnectOptions::new())
}

/// As [`connect`], with options that a URL can't contain: see [`crate::connect_with`].
///
/// # Errors
/// As [`connect`].
pub fn connect_with(url: &str, options: ConnectOptions) -> Result<Locks, Error> {
    let url = url.to_owned();
    let connect = async move { crate::connect_with(&url, options).await };
    let background = Arc::new(Background::start(connect)?);
    Ok(Locks { locks: background.locks.clone(), background })
}

impl Locks {
    /// Creates a lock for one holder at a time: see [`crate::Locks::mutex`].
    pub fn mutex(&self, name: impl IntoName) -> Result<Lock<Mutex>, Error> {
        Ok(self.lock(self.locks.mutex(name)?))
    }

    /// Creates a lock that is granted in order of arrival over all processes: see
    /// [`crate::Locks::fair`].
    pub fn fair(&self, name: impl IntoName) -> Result<Lock<FairMutex>, Error> {
        Ok(self.lock(self.locks.fair(name)?))
    }

    /// Creates a lock that its owner can enter again: see [`crate::Locks::reentrant`].
    pub fn reentrant(&self, name: impl IntoName) -> Result<Lock<ReentrantMutex>, Error> {
        Ok(self.lock(self.locks.reentrant(name)?))
    }

    /// Creates a lock for many readers or one writer: see [`crate::Locks::rw`].
    pub fn rw(&self, name: impl IntoName) -> Result<Lock<RwLock>, Error> {
        Ok(self.lock(self.locks.rw(name)?))
    }

    /// Creates a semaphore of `permits` permits: see [`crate::Locks::semaphore`].
    pub fn semaphore(
        &self,
        name: impl IntoName,
        permits: u32,
    ) -> Result<Lock<CountingSemaphore>, Error> {
        Ok(self.lock(self.locks.semaphore(name, permits)?))
    }

    /// Creates a lock of all these names or none: see [`crate::Locks::multi`].
    pub fn multi(
        &self,
        names: impl IntoIterator<Item = impl IntoName>,
    ) -> Result<Lock<MultiMutex>, Error> {
        Ok(self.lock(self.locks.multi(names)?))
    }

    /// Returns a view whose locks have these options: see [`crate::Locks::with_options`].
    pub fn with_options(&self, options: LockOptions) -> Result<Self, Error> {
        Ok(Self { locks: self.locks.with_options(options)?, ..self.clone() })
    }

    /// Returns the holders and waiters of the name: see [`crate::Locks::inspect`].
    pub fn inspect(&self, name: impl IntoName) -> Result<LockState, Error> {
        self.background.wait_for(self.locks.inspect(name))
    }

    /// Checks whether locks work now: see [`crate::Locks::health`].
    pub fn health(&self, within: Duration) -> Result<Health, Error> {
        self.background.block_on(self.locks.health(within))
    }

    /// The locks of async code, for features without a blocking form: jobs, elections, guarantees.
    /// Wait for their futures with [`block_on`](Self::block_on). A clone of them does not keep the
    /// background thread alive; after the thread has ended, its methods return errors.
    pub fn as_async(&self) -> &crate::Locks {
        &self.locks
    }

    /// Waits for a future of these locks, on their runtime.
    ///
    /// ```
    /// # fn main() -> Result<(), dlock::Error> {
    /// let locks = dlock::blocking::connect("memory:")?;
    /// let job = locks.as_async().job("nightly/report")?;
    /// let ran = locks.block_on(job.run(|token| async move { token.get() > 0 }))??;
    /// assert_eq!(ran.done(), Some(true));
    /// # Ok(()) }
    /// ```
    pub fn block_on<F: Future>(&self, work: F) -> Result<F::Output, Error> {
        self.background.block_on(work)
    }

    /// Shuts down: waits until every guard is dropped and its release has reached the store, see
    /// [`crate::Locks::shutdown`]. Call it before `main` returns, since the background thread ends
    /// with the process.
    pub fn shutdown(&self, wait: Duration) -> Result<(), Error> {
        self.background.wait_for(self.locks.shutdown(wait))
    }

    fn lock<L>(&self, lock: L) -> Lock<L> {
        Lock::new(lock, &self.background)
    }
}
