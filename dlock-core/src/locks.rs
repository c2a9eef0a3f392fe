//! What an application holds.

use std::{fmt, sync::Arc, time::Duration};

use crate::{
    Counting, DynBackend, Error, ErrorKind, Fair, FairLock, Fairness, Guarantees, Lock, LockName,
    LockOptions, LockProvider, LockState, Multi, MultiLock, Mutex, Permits, ReadWrite,
    ReadWriteLock, Reentrant, ReentrantLock, Semaphore, engine::Engine, kinds::Base,
};

/// Makes locks by name over one backend. Clones and views share one connection to the store, one
/// renewal task, and the local hand-off of mutexes.
///
/// ```
/// use dlock_core::{Locks, Memory};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), dlock_core::Error> {
/// let locks = Locks::new(Memory::new())?;
/// let guard = locks.mutex("inventory/42")?.lock().await?;
/// println!("write with fencing token {}", guard.token());
/// guard.release().await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Locks {
    engine: Arc<Engine>,
    options: LockOptions,
    hand_off: bool,
}

impl Locks {
    /// Locks over this backend, with default options, renewed on the current tokio runtime.
    ///
    /// # Errors
    /// `Config(Runtime)` outside a tokio runtime.
    pub fn new<B: crate::Backend>(backend: Arc<B>) -> Result<Self, Error> {
        Self::over(backend)
    }

    /// As [`new`](Self::new), for a backend whose type is not known.
    ///
    /// # Errors
    /// `Config(Runtime)` outside a tokio runtime.
    pub fn over(backend: DynBackend) -> Result<Self, Error> {
        let engine = Engine::start(backend)?;
        Ok(Self { engine, options: LockOptions::new(), hand_off: true })
    }

    /// A view whose locks have these options.
    ///
    /// # Errors
    /// `Config(Lease)` and `Config(Renewal)` for values out of range.
    pub fn with_options(&self, options: LockOptions) -> Result<Self, Error> {
        options.check()?;
        Ok(Self { options, ..self.clone() })
    }

    /// A view whose mutexes go to the store for each hold, also within the process.
    #[must_use]
    pub fn without_handoff(&self) -> Self {
        Self { hand_off: false, ..self.clone() }
    }

    /// The options of the locks that this view makes.
    pub fn options(&self) -> LockOptions {
        self.options
    }

    /// A lock for one holder at a time.
    ///
    /// # Errors
    /// `Config(Name)` for a name that can't be; so for every kind.
    pub fn mutex<N>(&self, name: N) -> Result<Mutex, Error>
    where
        N: TryInto<LockName>,
        Error: From<N::Error>,
    {
        Ok(Mutex::new(self.base(name)?, self.hand_off))
    }

    /// A lock that is granted in order of arrival over all processes.
    ///
    /// # Errors
    /// `Unsupported` when the backend grants in no order.
    pub fn fair<N>(&self, name: N) -> Result<Fair, Error>
    where
        N: TryInto<LockName>,
        Error: From<N::Error>,
    {
        let base = self.base(name)?;
        if self.guarantees().fairness < Fairness::Fifo {
            return Err(self.unsupported(&base.name, "grants in no order: use a mutex"));
        }
        Ok(Fair(base))
    }

    /// A lock that its owner can enter again.
    ///
    /// # Errors
    /// As for every kind.
    pub fn reentrant<N>(&self, name: N) -> Result<Reentrant, Error>
    where
        N: TryInto<LockName>,
        Error: From<N::Error>,
    {
        Ok(Reentrant::new(self.mutex(name)?))
    }

    /// A lock for many readers or one writer.
    ///
    /// # Errors
    /// As for every kind.
    pub fn rw<N>(&self, name: N) -> Result<ReadWrite, Error>
    where
        N: TryInto<LockName>,
        Error: From<N::Error>,
    {
        Ok(ReadWrite::new(self.base(name)?))
    }

    /// A semaphore of so many permits. All that use a name at one time must agree on the number.
    ///
    /// # Errors
    /// `Config(Permits)` for zero or too many; `Unsupported` when the backend can't count.
    pub fn semaphore<N>(&self, name: N, permits: u32) -> Result<Counting, Error>
    where
        N: TryInto<LockName>,
        Error: From<N::Error>,
    {
        let base = self.base(name)?;
        if self.guarantees().permits < Permits::Counted {
            return Err(self.unsupported(&base.name, "can't count permits"));
        }
        crate::Mode::permits(1, permits).map_err(|error| error.with_lock(&base.name))?;
        Ok(Counting { base, permits })
    }

    /// All of these locks or none, in any order and with repetitions.
    ///
    /// # Errors
    /// `Config(Empty)` for no name at all.
    pub fn multi<N>(&self, names: impl IntoIterator<Item = N>) -> Result<Multi, Error>
    where
        N: TryInto<LockName>,
        Error: From<N::Error>,
    {
        Multi::new(names.into_iter().map(|name| self.base(name)).collect::<Result<_, _>>()?)
    }

    /// What the store promises, as connected and configured.
    pub fn guarantees(&self) -> Guarantees {
        self.engine.backend.guarantees()
    }

    /// Makes sure at start-up that the store promises all that the application needs.
    ///
    /// # Errors
    /// `Config(Guarantee)`, listing everything that is missing.
    pub fn require(&self, needs: &Guarantees) -> Result<(), Error> {
        needs
            .check_given(&self.guarantees())
            .map_err(|error| error.with_store(self.engine.backend.store()))
    }

    /// Who holds the name and who waits for it, in all processes. Changes nothing, and may be out
    /// of date when it arrives.
    ///
    /// # Errors
    /// `Config(Name)`, `Unavailable`.
    pub async fn inspect<N>(&self, name: N) -> Result<LockState, Error>
    where
        N: TryInto<LockName>,
        Error: From<N::Error>,
    {
        let name = name.try_into()?;
        let backend = &self.engine.backend;
        backend
            .inspect(&name)
            .await
            .map_err(|error| error.during("inspect").with_lock(&name).with_store(backend.store()))
    }

    /// Ends in order: refuses new locks, then waits until every guard of these locks, their
    /// clones and views is gone and its release has reached the store. Call it before `main`
    /// returns, since releases of guards that were dropped just before would die with the runtime.
    ///
    /// # Errors
    /// `Timeout` after `wait`, saying how much is left; the leases free it.
    ///
    /// # Cancel safety
    /// New locks stay refused.
    pub async fn shutdown(&self, wait: Duration) -> Result<(), Error> {
        self.engine.shutdown(wait).await
    }

    /// The backend.
    pub fn backend(&self) -> &DynBackend {
        &self.engine.backend
    }

    fn base<N>(&self, name: N) -> Result<Base, Error>
    where
        N: TryInto<LockName>,
        Error: From<N::Error>,
    {
        let name = name.try_into()?;
        Ok(Base { engine: Arc::clone(&self.engine), name, options: self.options })
    }

    fn unsupported(&self, name: &LockName, why: &'static str) -> Error {
        let error = Error::new(ErrorKind::Unsupported, format!("this backend {why}"));
        error.with_lock(name).with_store(self.engine.backend.store())
    }
}

impl LockProvider for Locks {
    fn mutex(&self, name: &str) -> Result<Box<dyn Lock>, Error> {
        Ok(Box::new(self.mutex(name)?))
    }

    fn fair(&self, name: &str) -> Result<Box<dyn FairLock>, Error> {
        Ok(Box::new(self.fair(name)?))
    }

    fn reentrant(&self, name: &str) -> Result<Box<dyn ReentrantLock>, Error> {
        Ok(Box::new(self.reentrant(name)?))
    }

    fn rw(&self, name: &str) -> Result<Box<dyn ReadWriteLock>, Error> {
        Ok(Box::new(self.rw(name)?))
    }

    fn semaphore(&self, name: &str, permits: u32) -> Result<Box<dyn Semaphore>, Error> {
        Ok(Box::new(self.semaphore(name, permits)?))
    }

    fn multi(&self, names: &[&str]) -> Result<Box<dyn MultiLock>, Error> {
        Ok(Box::new(self.multi(names.iter().copied())?))
    }
}

impl fmt::Debug for Locks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Locks")
            .field("engine", &self.engine)
            .field("options", &self.options)
            .field("hand_off", &self.hand_off)
            .finish()
    }
}
