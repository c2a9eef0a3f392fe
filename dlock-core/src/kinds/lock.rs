//! The traits of locks. All of them are dyn-compatible, so that code accepts a `&dyn Lock` and a
//! test passes a fake.

use std::{fmt::Debug, time::Duration};

use async_trait::async_trait;

use crate::{Error, FencingToken, Guard, LockName, Owner};

/// A lock with one holder at a time, or a side of a [`ReadWriteLock`].
///
/// # Errors
/// `Unavailable` if the store is unreachable: a try fails after 1 1/8 response timeouts
/// ([`Backend::response_timeout`](crate::Backend::response_timeout)), a waiting caller after the
/// store has been unreachable for one lease. `Timeout` has the store's last error as its source if
/// the store failed during the wait. `Config` and `Unsupported` are returned at once. After any
/// error, the claim has been cancelled or is cancelled in the background.
///
/// # Cancel safety
/// Dropping the future of any method cancels the claim: no lock and no place in the queue stays
/// behind. A lock that was granted in between goes to the next waiter.
#[async_trait]
pub trait Lock: Send + Sync + Debug {
    /// The name of the lock; of a multi-lock, the first name in byte order.
    fn name(&self) -> &LockName;

    /// Takes the lock if it is free; returns `None` if it is busy. Waits for the store's answer,
    /// but not for a holder.
    ///
    /// Bind the guard: `let Some(guard) = lock.try_lock().await? else { return Ok(()) };`. A
    /// temporary guard, as in `if lock.try_lock().await?.is_some()`, is dropped before the block
    /// begins.
    async fn try_lock(&self) -> Result<Option<Guard>, Error>;

    /// Waits for the lock without a limit, unless [`with_wait`](crate::LockOptions::with_wait) sets
    /// one.
    ///
    /// Fails with `Timeout` after that limit.
    async fn lock(&self) -> Result<Guard, Error>;

    /// Waits for the lock for `wait` at most. Zero is one attempt; `Duration::MAX` is no limit.
    ///
    /// Fails with `Timeout` after the limit.
    async fn lock_timeout(&self, wait: Duration) -> Result<Guard, Error>;
}

/// A lock that is granted in the order in which claims reached the store, over all processes.
///
/// The trait adds a promise and no method: code that needs the order takes `&dyn FairLock`. A plain
/// [`Lock`] is granted in that order between processes too, but tasks of one process hand it off to
/// each other first, up to a limit.
pub trait FairLock: Lock {}

/// A lock that its [`Owner`] can take again while holding it.
///
/// Entering again costs no round trip, keeps the token, and fails with `Lost` if the hold was lost.
/// The last of the guards releases the lock when it is dropped.
///
/// Errors and cancel safety as for [`Lock`].
#[async_trait]
pub trait ReentrantLock: Send + Sync + Debug {
    /// The name of the lock.
    fn name(&self) -> &LockName;

    /// [`Lock::try_lock`] for this owner.
    async fn try_lock_as(&self, owner: &Owner) -> Result<Option<Guard>, Error>;

    /// [`Lock::lock`] for this owner.
    async fn lock_as(&self, owner: &Owner) -> Result<Guard, Error>;

    /// [`Lock::lock_timeout`] for this owner.
    async fn lock_timeout_as(&self, owner: &Owner, wait: Duration) -> Result<Guard, Error>;

    /// The number of live guards of this owner; zero if it does not hold the lock.
    fn hold_count(&self, owner: &Owner) -> usize;
}

/// A lock that many readers share or that one writer holds alone.
///
/// Readers and writers wait in one first-come, first-served queue, so neither side starves: a
/// reader that arrives after a waiting writer waits for it. [`Guard::downgrade`] turns a held write
/// into a read. An upgrade does not exist, because two readers that upgrade would wait for each
/// other for ever.
pub trait ReadWriteLock: Send + Sync + Debug {
    /// The name of the lock.
    fn name(&self) -> &LockName;

    /// The readers' side.
    fn read(&self) -> &dyn Lock;

    /// The writer's side.
    fn write(&self) -> &dyn Lock;
}

/// A number of permits, granted as leased guards in order of arrival, so that claims for few
/// permits do not starve a claim for many.
///
/// Errors and cancel safety as for [`Lock`]. Also `Config(Permits)` for more permits than the
/// semaphore has, and `Config(Capacity)` while live claims of the name use another number of
/// permits. Once the last of them has ended, the next claim sets the number. If it has to change
/// while programs run, use another name for each number, such as `crawlers-5`.
#[async_trait]
pub trait Semaphore: Send + Sync + Debug {
    /// The name of the semaphore.
    fn name(&self) -> &LockName;

    /// The number of permits.
    fn permits(&self) -> u32;

    /// Takes `n` permits if that many are free and nobody waits for them.
    async fn try_acquire_many(&self, n: u32) -> Result<Option<Guard>, Error>;

    /// Waits for `n` permits for the time that the options set.
    async fn acquire_many(&self, n: u32) -> Result<Guard, Error>;

    /// Waits for `n` permits for `wait` at most.
    async fn acquire_many_timeout(&self, n: u32, wait: Duration) -> Result<Guard, Error>;

    /// Takes a permit if one is free and nobody waits for it.
    async fn try_acquire(&self) -> Result<Option<Guard>, Error> {
        self.try_acquire_many(1).await
    }

    /// Waits for a permit for the time that the options set.
    async fn acquire(&self) -> Result<Guard, Error> {
        self.acquire_many(1).await
    }
}

/// All of several locks or none, without deadlock, unless locks are also nested by hand. The names
/// may be given in any order.
///
/// Its guard has a token for each name ([`Guard::tokens`]), and is lost if one of the locks is
/// lost.
pub trait MultiLock: Lock {
    /// The names, sorted and without repetition.
    fn names(&self) -> &[LockName];
}

/// Creates locks by name. An application uses [`Locks`](crate::Locks), which implements this for
/// every backend; tests pass their own provider.
///
/// # Errors
/// All methods: `Config(Name)` for an invalid name; `Unsupported` if the backend does not support
/// the kind.
pub trait LockProvider: Send + Sync + Debug {
    /// Creates a lock for one holder at a time. Tasks of one process hand it off to each other
    /// without the store, up to a limit, which makes a contended lock much faster.
    fn mutex(&self, name: &str) -> Result<Box<dyn Lock>, Error>;

    /// Creates a lock that is granted in order of arrival over all processes.
    fn fair(&self, name: &str) -> Result<Box<dyn FairLock>, Error>;

    /// Creates a lock that its owner can enter again.
    fn reentrant(&self, name: &str) -> Result<Box<dyn ReentrantLock>, Error>;

    /// Creates a lock for many readers or one writer.
    fn rw(&self, name: &str) -> Result<Box<dyn ReadWriteLock>, Error>;

    /// Creates a semaphore of `permits` permits.
    fn semaphore(&self, name: &str, permits: u32) -> Result<Box<dyn Semaphore>, Error>;

    /// Creates a lock of all these names or none.
    fn multi(&self, names: &[&str]) -> Result<Box<dyn MultiLock>, Error>;
}

/// Convenience methods of every [`Lock`], including `dyn Lock`.
pub trait LockExt: Lock {
    /// Takes the lock, runs `work` with the fencing token, and releases the lock.
    ///
    /// If the lock is lost, the future of `work` is dropped and the error is `Lost`; a lock-delay
    /// then runs to its end. Work that blocks its thread can't be dropped. If it outlived the lock,
    /// the error is `Lost` as well, even if only the release reveals the loss;
    /// [`Error::take_output`] then returns the output of the work. Waits as [`Lock::lock`] does. If
    /// the release fails, the result of `work` is still returned, and the lease frees the lock.
    ///
    /// If the lock is handed off to another task of this process, that task begins at once. This
    /// call returns when an answer of the store shows whether the lock was held until the end of
    /// `work`: after the release that follows the last hand-off, or after a renewal, which is sent
    /// 10 ms after the grant, or earlier if few tasks wait for the lock.
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
