//! A backend that fails on demand, as a network does, over another backend.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use dlock_core::{
    AcquireRequest, Acquired, Admin, Answer, Backend, Certainty, Claim, Clock, DynBackend, Error,
    ErrorKind, FencingToken, Finding, Grant, Guarantees, LockName, LockState, Released, Renewal,
    Renewed, StoreEvents,
};
use parking_lot::Mutex;

/// A backend that fails on demand, over one that works.
#[derive(Debug)]
pub(crate) struct FaultyBackend {
    inner: DynBackend,
    renewals: Mutex<Renewals>,
    /// The largest number of claims in one renewal.
    batch: AtomicUsize,
    lost_acquires: Arc<AtomicUsize>,
    lost_releases: Arc<AtomicUsize>,
    unreachable: Mutex<bool>,
    slow: Duration,
    /// Whether only the answers to acquires wait.
    is_late: bool,
}

/// The treatment of renewals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Renewals {
    Pass,
    /// This number of renewals fail; later ones succeed.
    Fail(usize),
    /// They never return.
    Hang,
}

impl FaultyBackend {
    pub(crate) fn new(inner: DynBackend) -> Arc<Self> {
        Arc::new(Self::over(inner, Duration::ZERO))
    }

    /// Returns a backend whose verbs wait before and after they take effect, so that a future has
    /// await points to be dropped at.
    pub(crate) fn slow(inner: DynBackend) -> Arc<Self> {
        Arc::new(Self::over(inner, Duration::from_millis(1)))
    }

    /// Returns a backend whose acquires are answered late. They begin as those of the store: a
    /// request that waits for its turn can be given up.
    pub(crate) fn late(inner: DynBackend) -> Arc<Self> {
        Arc::new(Self { is_late: true, ..Self::over(inner, Duration::from_millis(1)) })
    }

    fn over(inner: DynBackend, slow: Duration) -> Self {
        Self {
            inner,
            renewals: Mutex::new(Renewals::Pass),
            batch: AtomicUsize::new(0),
            lost_acquires: Arc::default(),
            lost_releases: Arc::default(),
            unreachable: Mutex::new(false),
            slow,
            is_late: false,
        }
    }

    pub(crate) fn renewals(&self, what: Renewals) {
        *self.renewals.lock() = what;
    }

    pub(crate) fn largest_batch(&self) -> usize {
        self.batch.load(Ordering::Relaxed)
    }

    /// Loses the replies to the next `replies` acquires after they took effect.
    pub(crate) fn lose_acquires(&self, replies: usize) {
        self.lost_acquires.store(replies, Ordering::Relaxed);
    }

    /// Loses the replies to the next `replies` releases after they took effect.
    pub(crate) fn lose_releases(&self, replies: usize) {
        self.lost_releases.store(replies, Ordering::Relaxed);
    }

    /// Sets whether the store is unreachable.
    pub(crate) fn unreachable(&self, is: bool) {
        *self.unreachable.lock() = is;
    }

    fn reach<T>(&self) -> Result<(), Answer<T>> {
        if *self.unreachable.lock() { Err(Answer::ready(Err(cut()))) } else { Ok(()) }
    }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl Backend for FaultyBackend {
    fn store(&self) -> &str {
        self.inner.store()
    }

    fn guarantees(&self) -> Guarantees {
        self.inner.guarantees()
    }

    fn clock(&self) -> Clock {
        self.inner.clock()
    }

    fn shard(&self, name: &LockName) -> u32 {
        self.inner.shard(name)
    }

    fn longest_lease(&self) -> Duration {
        self.inner.longest_lease()
    }

    fn check_lease(&self, lease: Duration) -> Result<(), Error> {
        self.inner.check_lease(lease)
    }

    fn response_timeout(&self) -> Duration {
        self.inner.response_timeout()
    }

    fn events(&self) -> Option<StoreEvents> {
        self.inner.events()
    }

    fn acquire(&self, request: &AcquireRequest) -> Answer<Acquired> {
        if let Err(cut) = self.reach() {
            return cut;
        }
        if self.is_late {
            return answered_late(self.slow, self.inner.acquire(request));
        }
        let (inner, request) = (self.inner.clone(), request.clone());
        meddled(self.slow, &self.lost_acquires, move || inner.acquire(&request))
    }

    async fn granted(&self, request: &AcquireRequest) -> Result<Grant, Error> {
        if *self.unreachable.lock() {
            return Err(cut());
        }
        let grant = self.inner.granted(request).await?;
        if self.slow > Duration::ZERO {
            tokio::time::sleep(self.slow).await;
        }
        Ok(grant)
    }

    async fn renew(&self, renewals: &[Renewal]) -> Result<Vec<Renewed>, Error> {
        self.batch.fetch_max(renewals.len(), Ordering::Relaxed);
        let what = *self.renewals.lock();
        match what {
            _ if *self.unreachable.lock() => return Err(cut()),
            Renewals::Hang => return std::future::pending().await,
            Renewals::Fail(left) if left > 0 => {
                self.renewals(Renewals::Fail(left - 1));
                return Err(cut());
            }
            _ => {}
        }
        self.inner.renew(renewals).await
    }

    fn release(&self, claim: &Claim) -> Answer<Released> {
        if let Err(cut) = self.reach() {
            return cut;
        }
        let (inner, claim) = (self.inner.clone(), claim.clone());
        meddled(self.slow, &self.lost_releases, move || inner.release(&claim))
    }

    async fn inspect(&self, name: &LockName) -> Result<LockState, Error> {
        self.inner.inspect(name).await
    }

    fn admin(&self) -> Option<&dyn Admin> {
        self.inner.admin()?;
        Some(self)
    }

    fn acquire_all(&self, requests: &[AcquireRequest]) -> Option<Answer<Vec<Acquired>>> {
        if let Err(cut) = self.reach() {
            return Some(cut);
        }
        if self.slow == Duration::ZERO {
            return self.inner.acquire_all(requests);
        }
        Some(answered_late(self.slow, self.inner.acquire_all(requests)?))
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl Admin for FaultyBackend {
    async fn list(&self, prefix: &str, limit: usize) -> Result<Vec<LockName>, Error> {
        self.inner.list(prefix, limit).await
    }

    async fn examine(&self) -> Result<Vec<Finding>, Error> {
        self.inner.examine().await
    }

    async fn raise_tokens(&self, name: &LockName, above: FencingToken) -> Result<(), Error> {
        if *self.unreachable.lock() {
            return Err(cut());
        }
        self.inner.raise_tokens(name, above).await
    }
}

/// Delays an answer.
fn answered_late<T: Send + 'static>(slow: Duration, answer: Answer<T>) -> Answer<T> {
    answer.wrap(move |answer| async move {
        let result = answer.await;
        tokio::time::sleep(slow).await;
        result
    })
}

/// Runs a verb with a delay before and after it, and may lose its reply.
fn meddled<T: Send + 'static>(
    slow: Duration,
    lost: &Arc<AtomicUsize>,
    verb: impl FnOnce() -> Answer<T> + Send + 'static,
) -> Answer<T> {
    let lost = lost.clone();
    if slow == Duration::ZERO && lost.load(Ordering::Relaxed) == 0 {
        return verb();
    }
    Answer::later(async move {
        if slow > Duration::ZERO {
            tokio::task::yield_now().await;
            tokio::time::sleep(slow).await;
        }
        let result = verb().await;
        if slow > Duration::ZERO {
            tokio::task::yield_now().await;
            tokio::time::sleep(slow).await;
        }
        let less = |left: usize| left.checked_sub(1);
        if lost.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok() {
            return Err(cut());
        }
        result
    })
}

fn cut() -> Error {
    Error::new(ErrorKind::Unavailable, "the kit has cut the connection: nothing to be done")
        .with_certainty(Certainty::Unknown)
}
