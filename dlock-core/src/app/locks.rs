//! What an application holds.

use std::{sync::Arc, time::Duration};

use crate::{
    Claim, ClaimState, CountingSemaphore, DynBackend, Election, Error, ErrorKind, FairLock,
    FairMutex, Fairness, FencingToken, Finding, Guarantees, Health, IntoName, Job, Lock, LockName,
    LockOptions, LockProvider, LockState, MultiLock, MultiMutex, Mutex, Permits, ReadWriteLock,
    ReentrantLock, ReentrantMutex, Released, RwLock, Semaphore,
    engine::{Engine, renewals},
    kinds::{Base, Client},
    support::shortened::Shortened,
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
///
/// # Errors
/// All that takes a name: `Config(Name)` for one that can't be.
#[derive(Clone, Debug)]
pub struct Locks {
    client: Arc<Client>,
    /// Shared with all that is made of it.
    options: Arc<LockOptions>,
    hand_off: bool,
}

impl Locks {
    /// Locks over this backend, with default options, renewed on the current tokio runtime. An
    /// `Arc` of any backend will do. For the options of a URL, use `dlock::connect`.
    ///
    /// # Errors
    /// `Config(Runtime)` outside a tokio runtime, and while its time is paused, unless the backend's
    /// clock is tokio's.
    pub fn new(backend: DynBackend) -> Result<Self, Error> {
        let client = Arc::new(Client::new(renewals::start(backend)?));
        Ok(Self { client, options: Arc::default(), hand_off: true })
    }

    /// A view whose locks have these options.
    ///
    /// # Errors
    /// `Config(Lease)` and `Config(Renewal)` for values out of range.
    pub fn with_options(&self, options: LockOptions) -> Result<Self, Error> {
        options.check()?;
        self.engine().shortened.tell(&self.engine().backend, options);
        Ok(Self { options: Arc::new(options), ..self.clone() })
    }

    /// A view whose mutexes go to the store for each hold, also within the process.
    #[must_use]
    pub fn without_handoff(&self) -> Self {
        Self { hand_off: false, ..self.clone() }
    }

    /// The options of the locks that this view makes.
    pub fn options(&self) -> LockOptions {
        *self.options
    }

    /// A lock for one holder at a time. Tasks of one process hand it off to each other, up to a bound,
    /// without the store: see [`without_handoff`](Self::without_handoff).
    pub fn mutex(&self, name: impl IntoName) -> Result<Mutex, Error> {
        Ok(Mutex::new(self.base(name)?, self.hand_off))
    }

    /// A lock that is granted in order of arrival over all processes.
    ///
    /// # Errors
    /// `Unsupported` when the backend grants in no order.
    pub fn fair(&self, name: impl IntoName) -> Result<FairMutex, Error> {
        let base = self.base(name)?;
        if self.guarantees().fairness < Fairness::Fifo {
            return Err(self.unsupported(&base.name, "grants in no order: use a mutex"));
        }
        Ok(FairMutex(base))
    }

    /// A lock that its [`Owner`](crate::Owner) can enter again while holding it.
    pub fn reentrant(&self, name: impl IntoName) -> Result<ReentrantMutex, Error> {
        Ok(ReentrantMutex::new(self.mutex(name)?))
    }

    /// A lock for many readers or one writer, in one first-come, first-served queue.
    pub fn rw(&self, name: impl IntoName) -> Result<RwLock, Error> {
        Ok(RwLock::new(self.base(name)?))
    }

    /// A semaphore of so many permits. All that use a name at one time must agree on the number.
    ///
    /// # Errors
    /// `Config(Permits)` for zero or too many; `Unsupported` when the backend can't count.
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

    /// All of these locks or none, without deadlock. The names may be in any order and may repeat.
    ///
    /// # Errors
    /// `Config(Empty)` for no name at all.
    pub fn multi(
        &self,
        names: impl IntoIterator<Item = impl IntoName>,
    ) -> Result<MultiMutex, Error> {
        MultiMutex::new(names.into_iter().map(|name| self.base(name)).collect::<Result<_, _>>()?)
    }

    /// What the store promises, as connected and configured.
    pub fn guarantees(&self) -> Guarantees {
        self.engine().backend.guarantees()
    }

    /// Makes sure at start-up that the store promises all that the application needs.
    ///
    /// # Errors
    /// `Config(Guarantee)`, listing everything that is missing.
    pub fn require(&self, needs: &Guarantees) -> Result<(), Error> {
        needs
            .check_given(&self.guarantees())
            .map_err(|error| error.with_store(self.engine().backend.store()))
    }

    /// The holders and waiters of the name, in all processes. Changes nothing, and may be out of date
    /// when it arrives.
    ///
    /// # Errors
    /// `Config(Name)`, `Unavailable`.
    pub async fn inspect(&self, name: impl IntoName) -> Result<LockState, Error> {
        let name = name.into_name()?;
        let backend = &self.engine().backend;
        let state = self.engine().while_it_runs(backend.inspect(&name)).await;
        state.map_err(|error| error.during("inspect").with_lock(&name).with_store(backend.store()))
    }

    /// The names that begin with `prefix` (all with an empty one) and are held or waited for, in all
    /// processes, in order; at most `limit`, and which ones is not said when there are more. A name
    /// that has just become free may be among them.
    ///
    /// # Errors
    /// `Unsupported` where the store can't list its locks, `Unavailable`.
    pub async fn list(&self, prefix: &str, limit: usize) -> Result<Vec<LockName>, Error> {
        let backend = &self.engine().backend;
        let during = |error: Error| error.during("list").with_store(backend.store());
        let names = self.engine().while_it_runs(backend.list(prefix, limit)).await;
        let mut names = names.map_err(during)?;
        names.sort_unstable();
        Ok(names)
    }

    /// Takes the lock away from its holders. The next waiter gets it. Returns the holders that lost
    /// it, with their tokens.
    ///
    /// For somebody who knows that the holder is gone for good and can't wait for its lease to end.
    /// A holder that lives learns of it with its next renewal, a third of its lease later at the
    /// latest, and works on until then, while others may hold the lock: the resource has to check
    /// [fencing tokens](FencingToken), or the holder has to be dead. It is an event in tracing, a
    /// warning.
    ///
    /// # Errors
    /// `Config(Name)`, `Unavailable`.
    ///
    /// # Cancel safety
    /// It may have been taken from some of the holders.
    pub async fn force_release(&self, name: impl IntoName) -> Result<Vec<ClaimState>, Error> {
        let name = name.into_name()?;
        let backend = &self.engine().backend;
        let during = |error: Error| {
            error.during("force_release").with_lock(&name).with_store(backend.store())
        };
        let mut taken = Vec::new();
        let state = self.engine().while_it_runs(backend.inspect(&name)).await;
        for holder in state.map_err(during)?.holders {
            let claim = Claim::new(name.clone(), holder.claim);
            let released = self.engine().while_it_runs(backend.release(&claim)).await;
            let released = released.map_err(during)?;
            if released == Released::Released {
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

    /// A candidate in the election of this name: one leads at a time.
    pub fn election(&self, name: impl IntoName) -> Result<Election, Error> {
        Ok(Election::new(self.base(name)?))
    }

    /// A job that runs once, however many machines want to run it.
    pub fn job(&self, name: impl IntoName) -> Result<Job, Error> {
        Ok(Job::new(self.base(name)?))
    }

    /// Whether locks work just now: one question to the store, which has to answer within this
    /// time, and the counts of this process. For a readiness endpoint; it is never an error.
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
    /// It can be dropped at any time.
    pub async fn health(&self, within: Duration) -> Health {
        Health::of(self.engine(), within).await
    }

    /// How the store is set up: its version, its clock, what this client may do there, each with
    /// what to do about it. Changes nothing that stays.
    ///
    /// # Errors
    /// `Unavailable`.
    pub async fn examine(&self) -> Result<Vec<Finding>, Error> {
        let backend = &self.engine().backend;
        let findings = self.engine().while_it_runs(backend.examine()).await;
        let mut findings =
            findings.map_err(|error| error.during("examine").with_store(backend.store()))?;
        findings.extend(Shortened::finding(backend, *self.options));
        Ok(findings)
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
