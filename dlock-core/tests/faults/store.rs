//! Memory whose faults the tests switch on.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use async_trait::async_trait;
use dlock_core::*;
use parking_lot::Mutex;

/// A store under tokio's clock.
#[derive(Debug)]
pub(crate) struct Store {
    inner: Arc<Memory>,
    /// The store may lose claims with longer leases.
    pub(crate) guard: Mutex<Duration>,
    /// If set, no request reaches the store. Each fails after this time, or is never answered if
    /// there is none.
    pub(crate) unreachable: AtomicBool,
    pub(crate) fails_after: Mutex<Option<Duration>>,
    /// While it is unreachable, waits in its queues fail too, and the errors say that nothing was
    /// applied: as if its connections were cut and new ones refused.
    pub(crate) refuses: AtomicBool,
    pub(crate) response_timeout: Mutex<Duration>,
    /// The time that a request takes if it grants a lock.
    pub(crate) takes: Mutex<Duration>,
    /// It can't acquire several locks atomically.
    pub(crate) one_by_one: AtomicBool,
    /// The number of further requests whose claims have ended, as at the end of a session.
    pub(crate) ends: AtomicUsize,
    pub(crate) acquires: AtomicUsize,
    pub(crate) releases: AtomicUsize,
}

impl Store {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            inner: Memory::with_clock(Clock::tokio()),
            guard: Mutex::new(Duration::MAX),
            unreachable: AtomicBool::new(false),
            fails_after: Mutex::default(),
            refuses: AtomicBool::new(false),
            response_timeout: Mutex::new(Duration::MAX),
            takes: Mutex::default(),
            one_by_one: AtomicBool::new(false),
            ends: AtomicUsize::new(0),
            acquires: AtomicUsize::new(0),
            releases: AtomicUsize::new(0),
        })
    }

    /// Returns a client of the store.
    pub(crate) fn client(self: &Arc<Self>, lease: Duration) -> Locks {
        let options = LockOptions::new().with_lease(lease);
        Locks::new(self.clone()).unwrap().with_options(options).unwrap()
    }

    /// From now on, no request reaches the store, and each fails after this time.
    pub(crate) fn becomes_unreachable(&self, fails_after: impl Into<Option<Duration>>) {
        *self.fails_after.lock() = fails_after.into();
        self.unreachable.store(true, SeqCst);
    }

    pub(crate) fn comes_back(&self) {
        self.unreachable.store(false, SeqCst);
    }

    /// The result of a request while the store is unreachable.
    fn fault<T: Send + 'static>(&self) -> Option<Answer<T>> {
        if !self.unreachable.load(SeqCst) {
            return None;
        }
        let after = *self.fails_after.lock();
        let certainty = match self.refuses.load(SeqCst) {
            true => Certainty::NotApplied,
            false => Certainty::Unknown,
        };
        Some(Answer::later(async move {
            match after {
                Some(after) => tokio::time::sleep(after).await,
                None => std::future::pending().await,
            }
            let error = Error::new(ErrorKind::Unavailable, "switched off by the test");
            Err(error.with_certainty(certainty))
        }))
    }

    /// The answer to a claim that has ended.
    fn ended<T>(&self) -> Option<Answer<T>> {
        let ends = |ends: usize| ends.checked_sub(1);
        self.ends.fetch_update(SeqCst, SeqCst, ends).ok()?;
        Some(Answer::ready(Err(Error::new(ErrorKind::NotHeld, "the claim has ended"))))
    }

    /// Waits until it refuses connections.
    async fn refused(&self) {
        while !(self.refuses.load(SeqCst) && self.unreachable.load(SeqCst)) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    async fn reach(&self) -> Result<(), Error> {
        match self.fault() {
            Some(fault) => fault.await,
            None => Ok(()),
        }
    }
}

#[async_trait]
impl Backend for Store {
    fn store(&self) -> &str {
        self.inner.store()
    }
    fn guarantees(&self) -> Guarantees {
        self.inner.guarantees()
    }
    fn clock(&self) -> Clock {
        self.inner.clock()
    }
    fn check_lease(&self, lease: Duration) -> Result<(), Error> {
        if lease <= *self.guard.lock() {
            return Ok(());
        }
        Err(Error::config(ConfigIssue::Lease, "longer than the guard of the test"))
    }
    fn response_timeout(&self) -> Duration {
        *self.response_timeout.lock()
    }
    fn acquire(&self, request: &AcquireRequest) -> Answer<Acquired> {
        self.acquires.fetch_add(1, SeqCst);
        let takes = *self.takes.lock();
        if let Some(fault) = self.fault().or_else(|| self.ended()) {
            return fault;
        }
        if takes.is_zero() {
            return self.inner.acquire(request);
        }
        let (inner, request) = (Arc::clone(&self.inner), request.clone());
        Answer::later(async move {
            tokio::time::sleep(takes).await;
            inner.acquire(&request).await
        })
    }
    async fn granted(&self, request: &AcquireRequest) -> Result<Grant, Error> {
        self.reach().await?;
        tokio::select! {
            grant = self.inner.granted(request) => grant,
            () = self.refused() => Err(Error::new(ErrorKind::Unavailable, "cut by the test")),
        }
    }
    async fn renew(&self, renewals: &[Renewal]) -> Result<Vec<Renewed>, Error> {
        self.reach().await?;
        self.inner.renew(renewals).await
    }
    fn release(&self, claim: &Claim) -> Answer<Released> {
        self.releases.fetch_add(1, SeqCst);
        self.fault().unwrap_or_else(|| self.inner.release(claim))
    }
    async fn inspect(&self, name: &LockName) -> Result<LockState, Error> {
        self.reach().await?;
        self.inner.inspect(name).await
    }
    fn acquire_all(&self, requests: &[AcquireRequest]) -> Option<Answer<Vec<Acquired>>> {
        if self.one_by_one.load(SeqCst) {
            return None;
        }
        self.fault().or_else(|| self.ended()).or_else(|| self.inner.acquire_all(requests))
    }
}
