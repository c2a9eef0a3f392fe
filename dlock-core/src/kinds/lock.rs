//! The traits that applications see. All of them are dyn-compatible, so that code takes a
//! `&dyn Lock` and a test passes a fake.

use std::{fmt::Debug, time::Duration};

use async_trait::async_trait;

use crate::{Error, FencingToken, Guard, LockName, Owner};

/// A lock with one holder at a time, or a side of a [`ReadWriteLock`].
///
/// # Errors
/// `Unavailable` when the store could not be reached: after one response timeout, and an eighth more,
/// by a try ([`Backend::response_timeout`](crate::Backend::response_timeout)), and after it has been
/// away for one lease by a caller that waits. `Timeout` has the store's last error as its source if
/// the store failed during the wait. `Config` and `Unsupported` at once. Whatever the error, the claim
/// has been withdrawn, or will be in the background.
///
/// # Cancel safety
/// Dropping the future of any method withdraws the claim: no lock and no place in the queue stays
/// behind, and a lock that was granted in between passes on.
#[async_trait]
pub trait Lock: Send + Sync + Debug {
    /// The name; of a multi-lock, the first of its names in byte order.
    fn name(&self) -> &LockName;

    /// Takes the lock if it is free, and does not wait for others, only for the store's answer. Busy is
    /// `None`, not an error.
    ///
    /// Bind the guard: `let Some(guard) = lock.try_lock().await? else { return Ok(()) };`. A guard
    /// that is only looked at, as in `if lock.try_lock().await?.is_some()`, is dropped before the
    /// block begins.
    async fn try_lock(&self) -> Result<Option<Guard>, Error>;

    /// Waits for the lock as long as the options say: for ever, unless
    /// [`with_wait`](crate::LockOptions::with_wait) set a limit.
    ///
    /// Fails with `Timeout` past that limit.
    async fn lock(&self) -> Result<Guard, Error>;

    /// Waits for the lock at most this long. Zero is one attempt; `Duration::MAX` is for ever.
    ///
    /// Fails with `Timeout` past the limit.
    async fn lock_timeout(&self, wait: Duration) -> Result<Guard, Error>;
}

/// A lock that is granted in the order in which claims reached the store, over all processes.
///
/// A promise and no new method: take `&dyn FairLock` to demand it. A plain [`Lock`] is granted in
/// that order too between processes, but hands over within a process first, up to a bound.
pub trait FairLock: Lock {}

/// A lock that its [`Owner`] can take again while holding it.
///
/// Entering again costs no round trip, keeps the token, and fails with `Lost` once the hold is
/// lost. The lock is released with the last of the guards.
///
/// Errors and cancel safety as for [`Lock`].
#[async_trait]
pub trait ReentrantLock: Send + Sync + Debug {
    /// The name.
    fn name(&self) -> &LockName;

    /// [`Lock::try_lock`] for this owner.
    async fn try_lock_as(&self, owner: &Owner) -> Result<Option<Guard>, Error>;

    /// [`Lock::lock`] for this owner.
    async fn lock_as(&self, owner: &Owner) -> Result<Guard, Error>;

    /// [`Lock::lock_timeout`] for this owner.
    async fn lock_timeout_as(&self, owner: &Owner, wait: Duration) -> Result<Guard, Error>;

    /// How many guards of this owner live; zero when it does not hold the lock.
    fn hold_count(&self, owner: &Owner) -> usize;
}

/// A lock that many readers share or one writer has alone.
///
/// Readers and writers stand in one first-come-first-served queue, so neither side starves: a
/// reader that comes after a waiting writer waits for it. A held write is turned into a read with
/// [`Guard::downgrade`]; there is no way back, because two readers that upgrade would wait for each
/// other for ever.
pub trait ReadWriteLock: Send + Sync + Debug {
    /// The name.
    fn name(&self) -> &LockName;

    /// The readers' side.
    fn read(&self) -> &dyn Lock;

    /// The writer's side.
    fn write(&self) -> &dyn Lock;
}

/// A number of permits that are handed out as leased guards, first come, first served, so that a
/// claim for many is not starved by claims for few.
///
/// Errors and cancel safety as for [`Lock`], and `Config(Permits)` when more are asked for than
/// there are, `Config(Capacity)` while live claims of the name use another number of permits.
#[async_trait]
pub trait Semaphore: Send + Sync + Debug {
    /// The name.
    fn name(&self) -> &LockName;

    /// How many permits there are.
    fn permits(&self) -> u32;

    /// Takes `n` permits if that many are free and nobody waits before.
    async fn try_acquire_many(&self, n: u32) -> Result<Option<Guard>, Error>;

    /// Waits for `n` permits as long as the options say.
    async fn acquire_many(&self, n: u32) -> Result<Guard, Error>;

    /// Waits for `n` permits at most this long.
    async fn acquire_many_timeout(&self, n: u32, wait: Duration) -> Result<Guard, Error>;

    /// Takes a permit if one is free and nobody waits before.
    async fn try_acquire(&self) -> Result<Option<Guard>, Error> {
        self.try_acquire_many(1).await
    }

    /// Waits for a permit as long as the options say.
    async fn acquire(&self) -> Result<Guard, Error> {
        self.acquire_many(1).await
    }
}

/// All of several locks or none, taken without a chance of deadlock, in whatever order their
/// names are given.
///
/// Its guard has a token for each name ([`Guard::tokens`]), and is lost when one of them is.
pub trait MultiLock: Lock {
    /// The names, sorted and without repetition.
    fn names(&self) -> &[LockName];
}

/// Makes locks by name: what an application holds. [`Locks`](crate::Locks) is the one for every
/// backend; tests pass their own.
///
/// # Errors
/// All methods: `Config(Name)` for a name that can't be; `Unsupported` when the backend can't do
/// this kind.
pub trait LockProvider: Send + Sync + Debug {
    /// A lock for one holder at a time. Within a process it hands over without the store, up to a
    /// bound, which makes a contended lock much faster.
    fn mutex(&self, name: &str) -> Result<Box<dyn Lock>, Error>;

    /// A lock that is granted in order of arrival over all processes.
    fn fair(&self, name: &str) -> Result<Box<dyn FairLock>, Error>;

    /// A lock that its owner can enter again.
    fn reentrant(&self, name: &str) -> Result<Box<dyn ReentrantLock>, Error>;

    /// A lock for many readers or one writer.
    fn rw(&self, name: &str) -> Result<Box<dyn ReadWriteLock>, Error>;

    /// A semaphore of so many permits.
    fn semaphore(&self, name: &str, permits: u32) -> Result<Box<dyn Semaphore>, Error>;

    /// All of these locks or none.
    fn multi(&self, names: &[&str]) -> Result<Box<dyn MultiLock>, Error>;
}

/// Sugar over every [`Lock`], `dyn` ones included.
pub trait LockExt: Lock {
    /// Takes the lock, runs `work` with the fencing token, and releases.
    ///
    /// When the lock is lost, `work` is dropped where it stands and the error is `Lost`; a lock-delay
    /// then runs to its end. Work that blocks its thread can't be dropped: when it has outlived the
    /// lock, also when only the release learns of it, the error is `Lost` as well, and
    /// [`Error::take_output`] gives what the work gave. Waits as
    /// [`Lock::lock`] does. If the release fails the result of `work` is returned all the same,
    /// and the lease frees the lock.
    ///
    /// ```
    /// # use dlock_core::{Locks, LockExt, Memory};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), dlock_core::Error> {
    /// let locks = Locks::new(Memory::new())?;
    /// let sold = locks.mutex("stock/42")?.with(|token| async move { token.get() > 0 }).await?;
    /// assert!(sold);
    /// # Ok(()) }
    /// ```
    fn with<T, Work, Fut>(&self, work: Work) -> impl Future<Output = Result<T, Error>> + Send
    where
        T: Send + 'static,
        Work: FnOnce(FencingToken) -> Fut + Send,
        Fut: Future<Output = T> + Send,
    {
        async move {
            let guard = self.lock().await?;
            let ran = guard.run(work(guard.token())).await;
            guard.end(ran, "release failed after the work was done").await
        }
    }
}

impl<L: Lock + ?Sized> LockExt for L {}
