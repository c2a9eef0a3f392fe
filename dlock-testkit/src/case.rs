//! A case, what it needs from a store, and its context: clients, names, times, tasks, and the check
//! of what the case leaves in the store.

use std::{
    fmt::{self, Display},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use dlock_core::{
    DynBackend, Error, Fairness, Fencing, Guarantees, Instant, LockName, LockOptions, Locks, Notes,
    OrphanRelease, Permits, Scope,
};
use parking_lot::Mutex;
use tokio::task::JoinSet;

use crate::{Bounds, Opened, Stop, Store, Verdict, stalls::tell, stop::ensure};

/// One claim about a store, and the code that proves it.
#[derive(Clone, Copy)]
pub struct Case {
    pub(crate) group: &'static str,
    pub(crate) name: &'static str,
    pub(crate) needs: &'static [Need],
    pub(crate) run: fn(Cx) -> Running,
}

pub(crate) type Running = Pin<Box<dyn Future<Output = Verdict>>>;

impl Case {
    /// The group and the claim: `fencing::token_grows_after_expiry`.
    pub fn name(&self) -> String {
        format!("{}::{}", self.group, self.name)
    }
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name())
    }
}

/// A need of a case. If a store rules it out, the case is ignored with the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// The store grants locks in the order of arrival.
    Fifo,
    /// The store has no such order, so a request for it must be refused.
    NoFifo,
    /// The store has semaphores.
    Permits,
    /// The store has no semaphores, so a request for one must be refused.
    NoPermits,
    /// The store keeps notes.
    Notes,
    /// The store keeps no notes, so no note must be seen.
    NoNotes,
    /// The store has fencing tokens.
    Tokens,
    /// Other processes can reach the store.
    Processes,
}

impl Need {
    /// Returns why the store does not meet this need, if it does not.
    pub(crate) fn missing_in(self, given: &Guarantees, address: Option<&str>) -> Option<String> {
        let met = match self {
            Self::Fifo => given.fairness >= Fairness::Fifo,
            Self::NoFifo => given.fairness < Fairness::Fifo,
            Self::Permits => given.permits >= Permits::Counted,
            Self::NoPermits => given.permits < Permits::Counted,
            Self::Notes => given.notes >= Notes::Kept,
            Self::NoNotes => given.notes < Notes::Kept,
            Self::Tokens => given.fencing > Fencing::None,
            Self::Processes => given.scope > Scope::Process && address.is_some(),
        };
        let (what, is) = match self {
            Self::Fifo | Self::NoFifo => ("order of grants", given.fairness.to_string()),
            Self::Permits | Self::NoPermits => ("semaphores", given.permits.to_string()),
            Self::Notes | Self::NoNotes => ("notes", given.notes.to_string()),
            Self::Tokens => ("fencing tokens", given.fencing.to_string()),
            Self::Processes if address.is_none() => ("reach", "no address for a child".to_owned()),
            Self::Processes => ("reach", given.scope.to_string()),
        };
        (!met).then(|| format!("{what}: {is}"))
    }
}

/// The lease of claims that must not expire while a case runs. It is longer than any bound, so that
/// a leaked claim is detected before it expires.
const STEADY: Duration = Duration::from_secs(300);

/// How long a connection is tried again while the store does not answer. A busy machine may take
/// longer than a response timeout.
const CONNECTS: Duration = Duration::from_secs(30);

/// The variable that multiplies the number of random operations.
const EFFORT: &str = "DLOCK_TEST_EFFORT";

/// The context of a case.
#[derive(Clone)]
pub(crate) struct Cx(Arc<Inner>);

struct Inner {
    case: String,
    store: Arc<dyn Store>,
    opened: Arc<dyn Opened>,
    guarantees: Guarantees,
    bounds: Bounds,
    names: Mutex<Vec<(Arc<dyn Opened>, LockName)>>,
    goes_on: AtomicBool,
}

impl Cx {
    pub(crate) fn new(
        case: &Case,
        store: Arc<dyn Store>,
        opened: Arc<dyn Opened>,
        guarantees: Guarantees,
        bounds: Bounds,
    ) -> Self {
        let names = Mutex::new(Vec::new());
        let (case, goes_on) = (case.name(), AtomicBool::new(false));
        Self(Arc::new(Inner { case, store, opened, guarantees, bounds, names, goes_on }))
    }

    /// Returns a new client at the level of the contract.
    pub(crate) async fn backend(&self) -> Result<DynBackend, Stop> {
        Ok(connected(|| self.0.opened.connect()).await?)
    }

    /// Returns a client that may resend acquires of `client`: a new one, or `client` itself if
    /// claims belong to a session.
    pub(crate) async fn twin(&self, client: &DynBackend) -> Result<DynBackend, Stop> {
        match self.0.guarantees.orphan_release {
            OrphanRelease::SessionEnd => Ok(client.clone()),
            _ => self.backend().await,
        }
    }

    /// Returns a new client whose locks do not expire while the case runs.
    pub(crate) async fn locks(&self) -> Result<Locks, Stop> {
        self.locks_with(self.steady()).await
    }

    /// Returns a new client with these options.
    pub(crate) async fn locks_with(&self, options: LockOptions) -> Result<Locks, Stop> {
        self.locks_over(self.backend().await?, options)
    }

    /// Returns a client over this backend.
    pub(crate) fn locks_over(
        &self,
        backend: DynBackend,
        options: LockOptions,
    ) -> Result<Locks, Stop> {
        Ok(Locks::new(backend)?.with_options(options)?)
    }

    /// Returns two clients and a name.
    pub(crate) async fn pair(&self) -> Result<(Locks, Locks, LockName), Stop> {
        Ok((self.locks().await?, self.locks().await?, self.name("lock")))
    }

    /// Returns options for locks that do not expire while the case runs and whose wait is bounded.
    pub(crate) fn steady(&self) -> LockOptions {
        LockOptions::new().with_lease(STEADY).with_wait(self.bound())
    }

    /// Returns options with the shortest lease.
    pub(crate) fn brief(&self) -> LockOptions {
        self.steady().with_lease(self.lease())
    }

    /// Returns a name that no other case uses.
    pub(crate) fn name(&self, hint: &str) -> LockName {
        let (case, salt) = (&self.0.case, rand::random::<u32>());
        self.literal(&format!("{case}/{hint}/{salt:08x}")).unwrap_or_else(|stop| {
            unreachable!("a name made of a case and a number: {}", stop.into_text())
        })
    }

    /// Returns exactly this name, which no other case may use.
    pub(crate) fn literal(&self, name: &str) -> Result<LockName, Stop> {
        let name = LockName::new(name)?;
        self.0.names.lock().push((self.0.opened.clone(), name.clone()));
        Ok(name)
    }

    /// Returns a client of a second store of the same kind, and a name in it.
    pub(crate) async fn elsewhere(&self) -> Result<(DynBackend, LockName), Stop> {
        let opened: Arc<dyn Opened> = self.0.store.open().await?.into();
        let backend = connected(|| opened.connect()).await?;
        let name = self.name("elsewhere");
        self.0.names.lock().push((opened, name.clone()));
        Ok((backend, name))
    }

    /// Deletes the store's record of a free name, or rules the case out.
    pub(crate) async fn forget(&self, name: &LockName) -> Verdict {
        if self.0.opened.forget(name).await? {
            return Ok(());
        }
        Err(Stop::ruled_out("this store can't be made to forget a name"))
    }

    /// Returns the address at which child processes find the store.
    pub(crate) fn address(&self) -> Result<String, Stop> {
        self.0.opened.address().ok_or_else(|| Stop::ruled_out("no address for a child"))
    }

    /// Returns the setting in which the store runs.
    pub(crate) fn setting(&self) -> &str {
        self.0.store.setting()
    }

    pub(crate) fn guarantees(&self) -> Guarantees {
        self.0.guarantees
    }

    /// Returns the shortest lease.
    pub(crate) fn lease(&self) -> Duration {
        self.0.bounds.lease
    }

    /// Returns a lease that renewal can keep on a machine that pauses for a moment or two.
    pub(crate) fn renewed(&self) -> Duration {
        (self.lease() * 4).max(Duration::from_secs(3))
    }

    /// Returns the pause by which a late poll misses an answer: several of them fit into the lease
    /// of [`renewed`](Self::renewed).
    pub(crate) fn late(&self) -> Duration {
        self.renewed() / 6
    }

    /// Returns options with the lease of [`renewed`](Self::renewed).
    pub(crate) fn renewing(&self) -> LockOptions {
        self.steady().with_lease(self.renewed())
    }

    /// Returns the bound on anything that must happen.
    pub(crate) fn bound(&self) -> Duration {
        self.0.bounds.wake_up
    }

    /// Records that a part of the case is done. A case that completes parts does not hang, however
    /// long all its parts take.
    pub(crate) fn goes_on(&self) {
        self.0.goes_on.store(true, Ordering::Relaxed);
    }

    /// Whether a part was done since the last call.
    pub(crate) fn went_on(&self) -> bool {
        self.0.goes_on.swap(false, Ordering::Relaxed)
    }

    /// Returns the number of random or repeated operations: `n` times the factor in [`EFFORT`].
    pub(crate) fn effort(&self, n: u32) -> u32 {
        let times = std::env::var(EFFORT).ok();
        let whole = times.and_then(|times| times.split('.').next()?.parse().ok());
        n.saturating_mul(whole.unwrap_or(1).max(1))
    }

    /// Waits for a future that must complete within the bound.
    #[track_caller]
    pub(crate) fn within<F: Future>(
        &self,
        what: impl Display,
        future: F,
    ) -> impl Future<Output = Result<F::Output, Stop>> {
        let late = Stop::failed(format!("{what}: not within {:?}", self.bound()));
        let bound = self.bound();
        async move { tokio::time::timeout(bound, future).await.map_err(|_| late) }
    }

    /// Repeats the probe until it returns `true`.
    #[track_caller]
    pub(crate) fn until<F>(
        &self,
        what: impl Display,
        mut probe: impl FnMut() -> F,
    ) -> impl Future<Output = Verdict>
    where
        F: Future<Output = Result<bool, Stop>>,
    {
        let asking = async move {
            let mut pause = Duration::from_millis(2);
            while !probe().await? {
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(Duration::from_millis(50));
            }
            Ok(())
        };
        let asking = self.within(what, asking);
        async move { asking.await? }
    }

    /// Waits until this number of claims wait for the name.
    #[track_caller]
    pub(crate) fn waiters<'a>(
        &'a self,
        backend: &'a DynBackend,
        name: &'a LockName,
        count: usize,
    ) -> impl Future<Output = Verdict> + 'a {
        self.until(format!("{count} claims wait"), move || async move {
            Ok(backend.inspect(name).await?.waiters.len() == count)
        })
    }

    /// Waits until no claim holds the name or waits for it.
    pub(crate) async fn free(&self, backend: &DynBackend, name: &LockName) -> Verdict {
        let free =
            self.until("", || async move { Ok(backend.inspect(name).await?.is_free()) }).await;
        if free.is_err() {
            let state = backend.inspect(name).await?;
            ensure!(state.is_free(), "{name:?} is not free within {:?}: {state:?}", self.bound());
        }
        Ok(())
    }

    /// Checks, without the backend, that the store contains nothing of the names of this case.
    pub(crate) async fn nothing_is_left(&self) -> Verdict {
        let names = std::mem::take(&mut *self.0.names.lock());
        for (opened, name) in &names {
            let left = Mutex::new(Vec::new());
            let gone = self.until("nothing is left", || async {
                let found = opened.leftovers(name).await?;
                *left.lock() = found;
                Ok(left.lock().is_empty())
            });
            if let Err(stop) = gone.await {
                let (left, why) = (left.into_inner(), stop.into_text());
                ensure!(false, "{name:?} leaves {left:?} in the store: {why}");
            }
        }
        Ok(())
    }
}

/// Returns the time on the clock that all parts and processes of a case share.
pub fn now() -> Instant {
    dlock_core::Clock::Boot.now()
}

/// Connects. After a transient failure it tries again, for 30 s, and each time a line on standard
/// error says so.
///
/// # Errors
/// The last error.
pub async fn connected<F>(connect: impl Fn() -> F) -> Result<DynBackend, Error>
where
    F: Future<Output = Result<DynBackend, Error>>,
{
    let end = now().saturating_add(CONNECTS);
    loop {
        match connect().await {
            Err(error) if error.is_transient() && now() < end => {
                tell(&format!("repeated: {error}"));
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            connected => return connected,
        }
    }
}

/// Waits for at least this time.
pub(crate) async fn pass(time: Duration) {
    let end = now().saturating_add(time);
    while now() < end {
        dlock_core::Clock::Boot.sleep_until(end).await;
    }
}

/// Tasks that work on one case together. They are aborted when this is dropped.
#[derive(Default)]
pub(crate) struct Crew(JoinSet<Verdict>);

impl Crew {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Starts a task.
    pub(crate) fn go(&mut self, work: impl Future<Output = Verdict> + Send + 'static) {
        self.0.spawn(work);
    }

    /// Waits until all tasks are done or one of them fails.
    pub(crate) async fn done(mut self, cx: &Cx) -> Verdict {
        let all = async {
            while let Some(one) = self.0.join_next().await {
                match one {
                    Ok(verdict) => verdict?,
                    Err(error) => return Err(Stop::failed(format!("a task died: {error}"))),
                }
            }
            Ok(())
        };
        // Contention has many steps, and on a busy machine each of them may take the whole bound.
        tokio::time::timeout(cx.bound() * 4, all)
            .await
            .unwrap_or_else(|_| Err(Stop::failed("tasks that contend do not get done")))
    }
}
