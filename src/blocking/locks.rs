//! What a program without a runtime holds.

use std::{sync::Arc, time::Duration};

use dlock_core::{
    CountingSemaphore, Error, FairMutex, Health, IntoName, LockOptions, LockState, MultiMutex,
    Mutex, ReentrantMutex, RwLock,
};

use super::{Lock, runtime::Background};
use crate::ConnectOptions;

/// Makes locks by name, as [`crate::Locks`] does for async code. Clones and views share one
/// connection to the store and one thread in the background.
///
/// # Errors
/// As there, and `Config(Runtime)` from all that waits where a tokio runtime is.
#[derive(Clone, Debug)]
pub struct Locks {
    locks: crate::Locks,
    background: Arc<Background>,
}

/// Connects to the store that `url` names: see [`crate::connect`].
///
/// # Errors
/// As there, but `Config(Runtime)` where a tokio runtime is, and when no thread can be started.
pub fn connect(url: &str) -> Result<Locks, Error> {
    connect_with(url, ConnectOptions::new())
}

/// As [`connect`], with what a URL does not say: see [`crate::connect_with`].
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
    /// A lock for one holder at a time: see [`crate::Locks::mutex`].
    pub fn mutex(&self, name: impl IntoName) -> Result<Lock<Mutex>, Error> {
        Ok(self.lock(self.locks.mutex(name)?))
    }

    /// A lock that is granted in order of arrival over all processes: see [`crate::Locks::fair`].
    pub fn fair(&self, name: impl IntoName) -> Result<Lock<FairMutex>, Error> {
        Ok(self.lock(self.locks.fair(name)?))
    }

    /// A lock that its owner can enter again: see [`crate::Locks::reentrant`].
    pub fn reentrant(&self, name: impl IntoName) -> Result<Lock<ReentrantMutex>, Error> {
        Ok(self.lock(self.locks.reentrant(name)?))
    }

    /// A lock for many readers or one writer: see [`crate::Locks::rw`].
    pub fn rw(&self, name: impl IntoName) -> Result<Lock<RwLock>, Error> {
        Ok(self.lock(self.locks.rw(name)?))
    }

    /// A semaphore of so many permits: see [`crate::Locks::semaphore`].
    pub fn semaphore(
        &self,
        name: impl IntoName,
        permits: u32,
    ) -> Result<Lock<CountingSemaphore>, Error> {
        Ok(self.lock(self.locks.semaphore(name, permits)?))
    }

    /// All of these locks or none: see [`crate::Locks::multi`].
    pub fn multi(
        &self,
        names: impl IntoIterator<Item = impl IntoName>,
    ) -> Result<Lock<MultiMutex>, Error> {
        Ok(self.lock(self.locks.multi(names)?))
    }

    /// A view whose locks have these options: see [`crate::Locks::with_options`].
    pub fn with_options(&self, options: LockOptions) -> Result<Self, Error> {
        Ok(Self { locks: self.locks.with_options(options)?, ..self.clone() })
    }

    /// Who holds the name and who waits for it: see [`crate::Locks::inspect`].
    pub fn inspect(&self, name: impl IntoName) -> Result<LockState, Error> {
        self.background.wait_for(self.locks.inspect(name))
    }

    /// Whether locks work just now: see [`crate::Locks::health`].
    pub fn health(&self, within: Duration) -> Result<Health, Error> {
        self.background.block_on(self.locks.health(within))
    }

    /// The locks of async code, for what has no blocking form: jobs, elections, guarantees. Its
    /// futures are waited for with [`block_on`](Self::block_on). A clone of it does not keep the
    /// thread in the background, without which it gives errors.
    pub fn as_async(&self) -> &crate::Locks {
        &self.locks
    }

    /// Waits for a future of these locks, on the runtime that they have.
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

    /// Ends in order, and waits until every guard is gone and its release has reached the store: see
    /// [`crate::Locks::shutdown`]. Call it before `main` returns, since the thread in the background
    /// dies with the process.
    pub fn shutdown(&self, wait: Duration) -> Result<(), Error> {
        self.background.wait_for(self.locks.shutdown(wait))
    }

    fn lock<L>(&self, lock: L) -> Lock<L> {
        Lock::new(lock, &self.background)
    }
}
