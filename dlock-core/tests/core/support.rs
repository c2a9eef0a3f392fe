//! A backend whose faults can be switched on, and helpers of the tests.
#![allow(dead_code, reason = "`trace` uses its part of it")]

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use dlock_core::*;
use parking_lot::Mutex;

/// Memory under tokio's clock, with counters and switchable faults.
#[derive(Debug)]
pub(crate) struct Faulty {
    pub(crate) inner: Arc<Memory>,
    address: String,
    pub(crate) renew_calls: AtomicUsize,
    pub(crate) acquires: AtomicUsize,
    pub(crate) largest_batch: AtomicUsize,
    pub(crate) renew_fails: AtomicBool,
    pub(crate) renew_hangs: AtomicBool,
    /// Names with this prefix are in a separate shard, which does not answer renewals.
    pub(crate) unreachable: Mutex<Option<&'static str>>,
    pub(crate) acquire_fails: AtomicUsize,
    pub(crate) slow: AtomicBool,
    /// It does not promise to grant in order.
    pub(crate) unordered: AtomicBool,
    /// It reports that it is a server, where renewals confirm hand-offs early.
    pub(crate) remote: AtomicBool,
    /// The faults of the next acquires.
    pub(crate) script: Mutex<VecDeque<Fault>>,
    /// The number of milliseconds after which the next waits in the queue fail.
    pub(crate) granted_fails: Mutex<VecDeque<u64>>,
    pub(crate) renew_takes: AtomicU64,
    /// The delay of an acquire's answer after it was applied, in milliseconds.
    pub(crate) answer_takes: AtomicU64,
    /// The longest lease that it supports.
    pub(crate) longest_lease: Mutex<Option<Duration>>,
    /// The number of the next calls of `raise_tokens` that fail.
    pub(crate) raise_fails: AtomicUsize,
    /// The events that it sends.
    pub(crate) events: StoreEventSender,
    /// Whether it has lost all its data.
    pub(crate) forgot: AtomicBool,
    /// Whether releases fail to reach it.
    pub(crate) release_fails: AtomicBool,
    /// The factor by which it prolongs all leases, as with a clock that was ahead.
    pub(crate) leases_last: AtomicU32,
}

/// The fault of an acquire.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    /// It is applied and the answer is lost.
    AnswerLost,
    /// It does not reach the store.
    NotSent,
}

impl Faulty {
    pub(crate) fn new() -> Arc<Self> {
        Self::over(Memory::with_clock(Clock::tokio()))
    }

    pub(crate) fn over(inner: Arc<Memory>) -> Arc<Self> {
        let address = inner.store().to_owned();
        Self::known_as(&address, inner)
    }

    /// A client that knows the store by this address.
    pub(crate) fn known_as(address: &str, inner: Arc<Memory>) -> Arc<Self> {
        Arc::new(Self {
            inner,
            address: address.to_owned(),
            renew_calls: AtomicUsize::new(0),
            acquires: AtomicUsize::new(0),
            largest_batch: AtomicUsize::new(0),
            renew_fails: AtomicBool::new(false),
            renew_hangs: AtomicBool::new(false),
            unreachable: Mutex::default(),
            acquire_fails: AtomicUsize::new(0),
            slow: AtomicBool::new(false),
            unordered: AtomicBool::new(false),
            remote: AtomicBool::new(false),
            script: Mutex::default(),
            granted_fails: Mutex::default(),
            renew_takes: AtomicU64::new(0),
            answer_takes: AtomicU64::new(0),
            longest_lease: Mutex::default(),
            raise_fails: AtomicUsize::new(0),
            events: StoreEventSender::new(4),
            forgot: AtomicBool::new(false),
            release_fails: AtomicBool::new(false),
            leases_last: AtomicU32::new(1),
        })
    }

    fn unavailable() -> Error {
        Error::new(ErrorKind::Unavailable, "switched off by the test")
    }
}

#[async_trait]
impl Backend for Faulty {
    fn store(&self) -> &str {
        &self.address
    }
    fn guarantees(&self) -> Guarantees {
        let mut guarantees = self.inner.guarantees();
        if self.remote.load(Ordering::SeqCst) {
            guarantees = guarantees.with_scope(Scope::Network);
        }
        match self.unordered.load(Ordering::SeqCst) {
            true => guarantees.with_fairness(Fairness::None),
            false => guarantees,
        }
    }
    fn clock(&self) -> Clock {
        self.inner.clock()
    }
    fn shard(&self, name: &LockName) -> u32 {
        u32::from(
            self.unreachable
                .lock()
                .is_some_and(|unreachable| name.as_str().starts_with(unreachable)),
        )
    }
    fn longest_lease(&self) -> Duration {
        self.longest_lease.lock().unwrap_or(Duration::MAX)
    }
    fn events(&self) -> Option<StoreEvents> {
        Some(self.events.subscribe())
    }

    fn acquire(&self, request: &AcquireRequest) -> Answer<Acquired> {
        self.acquires.fetch_add(1, Ordering::SeqCst);
        match self.script.lock().pop_front() {
            Some(Fault::AnswerLost) => {
                drop(self.inner.acquire(request));
                return Answer::ready(Err(Self::unavailable()));
            }
            Some(Fault::NotSent) => {
                let error = Self::unavailable().with_certainty(Certainty::NotApplied);
                return Answer::ready(Err(error));
            }
            None => {}
        }
        let fails = self.acquire_fails.load(Ordering::SeqCst);
        if fails > 0 {
            self.acquire_fails.store(fails - 1, Ordering::SeqCst);
            return Answer::ready(Err(Self::unavailable()));
        }
        let takes = self.answer_takes.load(Ordering::SeqCst);
        if takes > 0 {
            let (inner, request) = (Arc::clone(&self.inner), request.clone());
            return Answer::later(async move {
                let answer = inner.acquire(&request).await;
                tokio::time::sleep(millis(takes)).await;
                answer
            });
        }
        let mut request = request.clone();
        request.lease *= self.leases_last.load(Ordering::SeqCst);
        if !self.slow.load(Ordering::SeqCst) {
            return self.inner.acquire(&request);
        }
        let inner = Arc::clone(&self.inner);
        Answer::later(async move {
            tokio::time::sleep(Duration::from_millis(5)).await;
            let answer = inner.acquire(&request).await;
            tokio::time::sleep(Duration::from_millis(5)).await;
            answer
        })
    }
    async fn granted(&self, request: &AcquireRequest) -> Result<Grant, Error> {
        let fails = self.granted_fails.lock().pop_front();
        match fails {
            Some(after) => tokio::time::timeout(millis(after), self.inner.granted(request))
                .await
                .unwrap_or_else(|_| Err(Self::unavailable())),
            None => self.inner.granted(request).await,
        }
    }
    async fn renew(&self, renewals: &[Renewal]) -> Result<Vec<Renewed>, Error> {
        self.renew_calls.fetch_add(1, Ordering::SeqCst);
        self.largest_batch.fetch_max(renewals.len(), Ordering::SeqCst);
        let takes = self.renew_takes.load(Ordering::SeqCst);
        if takes > 0 {
            tokio::time::sleep(millis(takes)).await;
        }
        let unreachable = renewals.iter().any(|renewal| self.shard(&renewal.claim.name) > 0);
        if unreachable || self.renew_hangs.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
        if self.renew_fails.load(Ordering::SeqCst) {
            return Err(Self::unavailable());
        }
        if self.forgot.load(Ordering::SeqCst) {
            return Ok(vec![Renewed::Forgotten; renewals.len()]);
        }
        self.inner.renew(renewals).await
    }
    fn release(&self, claim: &Claim) -> Answer<Released> {
        if self.release_fails.load(Ordering::SeqCst) {
            return Answer::ready(Err(Self::unavailable()));
        }
        if !self.slow.load(Ordering::SeqCst) {
            return self.inner.release(claim);
        }
        let (inner, claim) = (Arc::clone(&self.inner), claim.clone());
        Answer::later(async move {
            tokio::time::sleep(Duration::from_millis(5)).await;
            inner.release(&claim).await
        })
    }
    async fn inspect(&self, name: &LockName) -> Result<LockState, Error> {
        self.inner.inspect(name).await
    }

    fn admin(&self) -> Option<&dyn Admin> {
        Some(self)
    }

    fn acquire_all(&self, requests: &[AcquireRequest]) -> Option<Answer<Vec<Acquired>>> {
        let takes = self.answer_takes.load(Ordering::SeqCst);
        let answer = self.inner.acquire_all(requests)?;
        Some(Answer::later(async move {
            let answer = answer.await;
            tokio::time::sleep(millis(takes)).await;
            answer
        }))
    }
}

#[async_trait]
impl Admin for Faulty {
    async fn raise_tokens(&self, name: &LockName, above: FencingToken) -> Result<(), Error> {
        let fails = self.raise_fails.load(Ordering::SeqCst);
        if fails > 0 {
            self.raise_fails.store(fails - 1, Ordering::SeqCst);
            return Err(Self::unavailable());
        }
        self.inner.raise_tokens(name, above).await
    }
}

pub(crate) fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub(crate) fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}
