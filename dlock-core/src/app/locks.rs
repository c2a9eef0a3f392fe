//! The main type of an application.

use std::{sync::Arc, time::Duration};

use crate::{
    Claim, ClaimId, ClaimState, CountingSemaphore, DynBackend, Election, Error, ErrorKind,
    FairLock, FairMutex, Fairness, FencingToken, Finding, Guarantees, Health, IntoName, Job, Lock,
    LockName, LockOptions, LockProvider, LockState, MultiLock, MultiMutex, Mutex, Permits,
    ReadWriteLock, ReentrantLock, ReentrantMutex, Released, RwLock, Semaphore,
    engine::{Engine, renewals},
    kinds::{Base, Client},
    support::lease_warning::LeaseWarning,
};

/// Creates locks by name over one backend. Clones and views share one connection to the store, one
/// renewal task, and the local hand-off of mutexes.
///
/// ```
/// # mod dlock { pub use dlock_core::*; pub mod backend { pub use dlock_core::*; } }
/// use dlock::{Locks, backend::Memory};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), dlock_core::Error> {
/// let locks = Locks::new(Memory::new())?;
/// let guard = locks.mutex("inventory/42")?.lock().await?;
/// println!("write with fencing token {}", guard.token());
/// guard.release().await?;
/// # Ok(()) }
/// ```
///
/// # Errors
/// All methods with a name: `Config(Name)` for an invalid name.
#[derive(Clone, Debug)]
pub struct Locks {
    client: Arc<Client>,
    /// Shared with everything that is made from these locks.
    options: Arc<LockOptions>,
    hand_off: bool,
}

impl Locks {
    /// Creates locks over this backend, with default options. They are renewed on the current tokio
    /// runtime. The parameter accepts an `Arc` of any backend. For the options of a URL, use
    /// `dlock::connect`.
    ///
    /// # Errors
    /// `Config(Runtime)` outside a tokio runtime, and while tokio's time is paused, unless the
    /// backend uses tokio's clock.
    pub fn new(backend: DynBackend) -> Result<Self, Error> {
        let client = Arc::new(Client::new(renewals::start(backend)?));
        Ok(Self { client, options: Arc::default(), hand_off: true })
    }

    /// Returns a view whose locks have these options.
    ///
    /// # Errors
    /// `Config(Lease)` and `Config(Renewal)` for values out of range.
    pub fn with_options(&self, options: LockOptions) -> Result<Self, Error> {
        options.check()?;
        self.engine().lease_warning.warn(&self.engine().backend, options);
        Ok(Self { options: Arc::new(options), ..self.clone() })
    }

    /// Returns a view whose mutexes use the store for each hold, also within the process.
    #[must_use]
    pub fn without_handoff(&self) -> Self {
        Self { hand_off: false, ..self.clone() }
    }

    /// The options of the locks that this view creates.
    pub fn options(&self) -> LockOptions {
        *self.options
    }

    /// Creates a lock for one holder at a time. Tasks of one process hand it off to each other
    /// without the store, up to a limit: see [`without_handoff`](Self::without_handoff).
    pub fn mutex(&self, name: impl IntoName) -> Result<Mutex, Error> {
        Ok(Mutex::new(self.base(name)?, self.hand_off))
    }

    /// Creates a lock that is granted in order of arrival over all processes.
    ///
    /// # Errors
    /// `Unsupported` if the backend grants in no order.
    pub fn fair(&self, name: impl IntoName) -> Result<FairMutex, Error> {
        let base = self.base(name)?;
        if self.guarantees().fairness < Fairness::Fifo {
            return Err(self.unsupported(&base.name, "grants in no order: use a mutex"));
        }
        Ok(FairMutex(base))
    }

    /// Creates a lock that its [`Owner`](crate::Owner) can enter again while holding it.
    pub fn reentrant(&self, name: impl IntoName) -> Result<ReentrantMutex, Error> {
        Ok(ReentrantMutex::new(self.mutex(name)?))
    }

    /// Creates a lock for many readers or one writer, with one first-come, first-served queue.
    pub fn rw(&self, name: impl IntoName) -> Result<RwLock, Error> {
        Ok(RwLock::new(self.base(name)?))
    }

    /// Creates a semaphore of `permits` permits. All concurrent users of a name must agree on the
    /// number.
    ///
    /// # Errors
    /// `Config(Permits)` for zero or too many; `Unsupported` if the backend can't count permits.
    pub fn semaphore(&self, name: impl IntoName, permits: u32) -> Result<CountingSemaphore, Error> {
        let base = self.base(name)?;
        if self.guarantees().permits < Permits::Counted {
            return Err(self.unsupported(
                &base.name,
                "can't count permits: use a mutex, or a store with semaphores",
            ));
        }
        crate::Mode::permits(1, permits).map_err(|error| error.with_lock(&base.name))?;
        Ok(CountingSemaphore { base, permits })
    }

    /// Creates a lock of all these names or none, without deadlock. The names may be in any order
    /// and may repeat.
    ///
    /// # Errors
    /// `Config(Empty)` for an empty list of names; `Unsupported` for more than 1,000 of them.
    pub fn multi(
        &self,
        names: impl IntoIterator<Item = impl IntoName>,
    ) -> Result<MultiMutex, Error> {
        MultiMutex::new(names.into_iter().map(|name| self.base(name)).collect::<Result<_, _>>()?)
    }

    /// The promises of the store, as connected and configured.
    pub fn guarantees(&self) -> Guarantees {
        self.engine().backend.guarantees()
    }

    /// Checks at startup that the store promises all that the application needs.
    ///
    /// # Errors
    /// `Config(Guarantee)`, which lists everything that is missing.
    pub fn require(&self, needs: &Guarantees) -> Result<(), Error> {
        needs
            .check_given(&self.guarantees())
            .map_err(|error| error.with_store(self.engine().backend.store()))
    }

    /// Returns the holders and waiters of the name, in all processes. Changes nothing. The answer
    /// may be out of date when it arrives.
    ///
    /// # Errors
    /// `Config(Name)`, `Unavailable`.
    pub async fn inspect(&self, name: impl IntoName) -> Result<LockState, Error> {
        let name = name.into_name()?;
        self.engine().inspect(&name).await
    }

    /// Returns the names that begin with `prefix` and have a holder or a waiter in any process, in
    /// order. An empty prefix returns all names. Returns at most `limit` names; if more exist, the
    /// choice is unspecified. A name that has just become free may be among them.
    ///
    /// # Errors
    /// `Unsupported` if the store can't list its locks, `Unavailable`.
    pub async fn list(&self, prefix: &str, limit: usize) -> Result<Vec<LockName>, Error> {
        let backend = &self.engine().backend;
        let during = |error: Error| error.during("list").with_store(backend.store());
        let names = self.engine().while_it_runs(backend.list(prefix, limit)).await;
        let mut names = names.map_err(during)?;
        names.sort_unstable();
        Ok(names)
    }

    /// Revokes the lock from its holders. The next waiter gets it. Returns the holders that lost
    /// it, with their tokens.
    ///
    /// Use it if you know that the holder is dead, and you can't wait until its lease expires. A
    /// live holder detects the loss with its next renewal, after a third of its lease at the
    /// latest. Until then it continues to work, while others may hold the lock: the resource has to
    /// check [fencing tokens](FencingToken), or the holder has to be dead. `tracing` records a
    /// warning.
    ///
    /// # Errors
    /// `Config(Name)`, `Unavailable`. `Unsupported` if the store does not know the claim of the
    /// holder ([`ClaimId::UNKNOWN`](crate::ClaimId::UNKNOWN)): an advisory lock of another session,
    /// or a plain lock of another program.
    ///
    /// # Cancel safety
    /// Some of the holders may have lost the lock.
    pub async fn force_release(&self, name: impl IntoName) -> Result<Vec<ClaimState>, Error> {
        let name = name.into_name()?;
        let backend = &self.engine().backend;
        let mut taken = Vec::new();
        for holder in self.engine().inspect(&name).await?.holders {
            if holder.claim == ClaimId::UNKNOWN {
                let error = Error::new(
                    ErrorKind::Unsupported,
                    "the lock is held, but the store does not know by which claim, so it can't be \
                     revoked: end the program that holds it, or its session in the store",
                );
                return Err(error.at("release", &name, backend.store()));
            }
            let claim = Claim::new(name.clone(), holder.claim);
            let released = self.engine().while_it_runs(backend.release(&claim)).await;
            let released = self.engine().in_context("release", &name, released);
            if released? == Released::Released {
                tracing::warn!(
                    target: "dlock",
                    { lock.name = %name, backend = backend.store(),
                      token = holder.token.map(FencingToken::get) },
                    "lock force-released"
                );
                taken.push(holder);
            }
        }
        Ok(taken)
    }

    /// Creates a candidate in the election of this name; one candidate leads at a time.
    pub fn election(&self, name: impl IntoName) -> Result<Election, Error> {
        Ok(Election::new(self.base(name)?))
    }

    /// Creates a job that runs once, on any machine.
    pub fn job(&self, name: impl IntoName) -> Result<Job, Error> {
        Ok(Job::new(self.base(name)?))
    }

    /// Checks whether locks work now: sends one request to the store, which has to answer within
    /// this time, and counts the locks of this process. For a readiness endpoint; it never returns
    /// an error.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use dlock_core::{Locks, Memory};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), dlock_core::Error> {
    /// let locks = Locks::new(Memory::new())?;
    /// let health = locks.health(Duration::from_secs(2)).await;
    /// let status = if health.is_ready() { 200 } else { 503 };
    /// assert_eq!((status, health.held, health.waiting), (200, 0, 0));
    /// # Ok(()) }
    /// ```
    ///
    /// # Cancel safety
    /// The future can be dropped at any time.
    pub async fn health(&self, within: Duration) -> Health {
        Health::of(self.engine(), within).await
    }

    /// Examines the configuration of the store: its version, its clock and the permissions of this
    /// client, each with a remedy. Leaves no lasting change.
    ///
    /// # Errors
    /// `Unavailable`.
    pub async fn examine(&self) -> Result<Vec<Finding>, Error> {
        let backend = &self.engine().backend;
        let findings = self.engine().while_it_runs(backend.examine()).await;
        let mut findings =
            findings.map_err(|error| error.during("examine").with_store(backend.store()))?;
        findings.extend(LeaseWarning::finding(backend, *self.options));
        Ok(findings)
    }

    /// Shuts down: refuses new locks, then waits until every guard of these locks, their clones and
    /// views is dropped and its release has reached the store. Call it before `main` returns;
    /// otherwise the background releases of dropped guards end with the runtime.
    ///
    /// # Errors
    /// `Timeout` after `wait`, with the number of remaining locks; their leases free them.
    ///
    /// # Cancel safety
    /// New locks are still refused.
    pub async fn shutdown(&self, wait: Duration) -> Result<(), Error> {
        self.engine().shutdown(wait).await
    }

    /// The backend.
    pub fn backend(&self) -> &DynBackend {
        &self.engine().backend
    }

    pub(super) fn engine(&self) -> &Arc<Engine> {
        &self.client.engine
    }

    fn base(&self, name: impl IntoName) -> Result<Base, Error> {
        let name = name.into_name()?;
        Ok(Base { client: Arc::clone(&self.client), name, options: Arc::clone(&self.options) })
    }

    fn unsupported(&self, name: &LockName, why: &'static str) -> Error {
        let error = Error::new(ErrorKind::Unsupported, format!("this backend {why}"));
        error.with_lock(name).with_store(self.engine().backend.store())
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
