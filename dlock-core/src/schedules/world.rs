//! The world of a scenario: a store that counts requests, locks over it, and a check at the end.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use async_trait::async_trait;
use futures_util::FutureExt;
use shuttle::{future::JoinHandle, rand::Rng};
use tokio::sync::Notify;

use crate::{
    AcquireRequest, Acquired, Answer, Backend, Claim, ClaimId, Clock, Error, ErrorKind, Grant,
    Guarantees, LockName, LockState, Locks, Memory, Released, Renewal, Renewed, Scope, StoreEvent,
    StoreEventSender, StoreEvents,
    sync::{point, time},
};

pub(super) const NAME: &str = "n";

/// The time at which the store answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answers {
    AtOnce,
    Later,
}

/// The store and the counts of its requests. The counters are not part of the schedule.
#[derive(Clone, Debug)]
pub(super) struct Store {
    inner: Arc<Memory>,
    answers: Answers,
    /// The number of renewals that fail next.
    failing: Arc<AtomicUsize>,
    losses: StoreEventSender,
    /// Notified when a renewal was answered.
    pub(super) renewed: Arc<Notify>,
    /// The number of releases of unknown claims.
    vain: Arc<AtomicUsize>,
}

pub(super) struct World {
    pub(super) store: Arc<Store>,
    pub(super) locks: Locks,
    inside: Arc<AtomicUsize>,
    token: Arc<AtomicU64>,
}

impl World {
    pub(super) fn new(answers: Answers) -> Self {
        let store = Arc::new(Store {
            inner: Memory::new(),
            answers,
            failing: Arc::default(),
            losses: StoreEventSender::new(4),
            renewed: Arc::default(),
            vain: Arc::default(),
        });
        let locks = Locks::new(store.clone()).unwrap();
        Self { store, locks, inside: Arc::default(), token: Arc::default() }
    }

    /// Makes the next claim request a block of tokens, as a claim does after a task has queued.
    pub(super) async fn warm(&self) {
        let lock = self.locks.mutex(NAME).unwrap();
        let guard = lock.lock().await.unwrap();
        assert!(lock.lock().now_or_never().is_none(), "two hold the lock");
        guard.release().await.unwrap();
    }

    /// Creates another process with the same store.
    pub(super) fn another(&self) -> Self {
        Self {
            store: Arc::clone(&self.store),
            locks: Locks::new(self.store.clone()).unwrap(),
            inside: Arc::clone(&self.inside),
            token: Arc::clone(&self.token),
        }
    }

    /// Starts a task that holds the lock `rounds` times, and drops the guard half of the time.
    pub(super) fn worker(&self, rounds: usize) -> JoinHandle<()> {
        let lock = self.locks.mutex(NAME).unwrap();
        let (inside, token) = (Arc::clone(&self.inside), Arc::clone(&self.token));
        shuttle::future::spawn(async move {
            for round in 0..rounds {
                let guard = lock.lock().await.unwrap();
                assert_eq!(inside.fetch_add(1, SeqCst), 0, "two hold the lock");
                let before = token.swap(guard.token().get(), SeqCst);
                assert!(before < guard.token().get(), "the token did not rise");
                point();
                guard.check().expect("the lock is held");
                assert_eq!(inside.fetch_sub(1, SeqCst), 1, "two hold the lock");
                if round % 2 == 0 {
                    assert_eq!(guard.release().await.unwrap(), Released::Released);
                }
            }
        })
    }

    /// Starts a task that holds the lock `rounds` times, and may lose it.
    pub(super) fn worker_that_may_lose(&self, rounds: usize) -> JoinHandle<()> {
        let lock = self.locks.mutex(NAME).unwrap();
        shuttle::future::spawn(async move {
            for _ in 0..rounds {
                let guard = lock.lock().await.unwrap();
                point();
                let _ = guard.release().await.unwrap();
            }
        })
    }

    /// Waits until the last release has reached the store and the renewal queue is empty.
    pub(super) async fn until_idle(&self) {
        self.locks.shutdown(Duration::from_secs(1)).await.expect("something is left behind");
    }

    /// Checks that nothing is left behind and that nothing was released twice: at most `vain`
    /// releases were of unknown claims, which happens for lost locks.
    pub(super) async fn is_over(self, vain: usize) {
        self.until_idle().await;
        let state = self.store.inspect(&LockName::new(NAME).unwrap()).await.unwrap();
        assert!(state.waiters.is_empty(), "a claim still waits: {state:?}");
        assert!(state.holders.is_empty(), "a claim is still held: {state:?}");
        let was_vain = self.store.vain.load(SeqCst);
        assert!(was_vain <= vain, "{was_vain} releases of what was not held");
    }
}

impl Store {
    /// Makes the next renewals fail.
    pub(super) fn fail(&self, renewals: usize) {
        self.failing.store(renewals, SeqCst);
    }

    /// Revokes the lock from its holder, and reports it.
    pub(super) async fn revoke(&self) {
        a_while();
        for claim in self.revoke_silently().await {
            point();
            self.losses.send(StoreEvent::Ended(claim));
        }
    }

    /// Revokes the lock from its holder, whose next request reveals it. Returns the claims.
    pub(super) async fn revoke_silently(&self) -> Vec<ClaimId> {
        let name = LockName::new(NAME).unwrap();
        let state = self.inner.inspect(&name).await.unwrap();
        let mut revoked = Vec::new();
        for holder in state.holders {
            let claim = Claim::new(name.clone(), holder.claim);
            self.inner.release(&claim).await.unwrap();
            revoked.push(holder.claim);
        }
        revoked
    }

    fn release_now(&self, claim: &Claim) -> Result<Released, Error> {
        let answer = self.inner.release(claim).now_or_never().expect("memory answers at once");
        if answer.as_ref().is_ok_and(|released| *released == Released::AlreadyLost) {
            self.vain.fetch_add(1, SeqCst);
        }
        answer
    }
}

/// Lets other tasks run for a while. Without it a short task nearly always ends before the others
/// have reached the critical place.
pub(super) fn a_while() {
    for _ in 0..shuttle::rand::thread_rng().gen_range(0..30) {
        point();
    }
}

/// Advances the time in two steps, which together are shorter than a lease.
pub(super) fn passing(step: Duration) -> JoinHandle<()> {
    shuttle::future::spawn(async move {
        for _ in 0..2 {
            a_while();
            time::advance(step);
        }
    })
}

#[async_trait]
impl Backend for Store {
    fn store(&self) -> &str {
        self.inner.store()
    }

    fn guarantees(&self) -> Guarantees {
        // So that renewals confirm hand-offs early, as on a server.
        self.inner.guarantees().with_scope(Scope::Network)
    }

    fn clock(&self) -> Clock {
        self.inner.clock()
    }

    fn events(&self) -> Option<StoreEvents> {
        Some(self.losses.subscribe())
    }

    fn acquire(&self, request: &AcquireRequest) -> Answer<Acquired> {
        if self.answers == Answers::AtOnce {
            return self.inner.acquire(request);
        }
        let (inner, request) = (Arc::clone(&self.inner), request.clone());
        // A task of the backend sends the request when it is its turn. Once sent, the request
        // continues even if the answer is dropped.
        Answer::unsent(|turn| async move {
            let sent = shuttle::future::spawn(async move {
                shuttle::future::yield_now().await;
                if !turn.begin() {
                    return Err(Error::new(ErrorKind::Unavailable, "the request was given up"));
                }
                shuttle::future::yield_now().await;
                inner.acquire(&request).await
            });
            sent.await.unwrap()
        })
    }

    async fn granted(&self, request: &AcquireRequest) -> Result<Grant, Error> {
        let grant = self.inner.granted(request).await?;
        shuttle::future::yield_now().await;
        Ok(grant)
    }

    async fn renew(&self, renewals: &[Renewal]) -> Result<Vec<Renewed>, Error> {
        shuttle::future::yield_now().await;
        let failing = self.failing.load(SeqCst);
        let answer = if failing > 0 {
            self.failing.store(failing - 1, SeqCst);
            Err(Error::new(ErrorKind::Unavailable, "switched off by the scenario"))
        } else {
            self.inner.renew(renewals).await
        };
        shuttle::future::yield_now().await;
        self.renewed.notify_one();
        answer
    }

    fn release(&self, claim: &Claim) -> Answer<Released> {
        if self.answers == Answers::AtOnce {
            return Answer::ready(self.release_now(claim));
        }
        let (store, claim) = (self.clone(), claim.clone());
        Answer::later(async move {
            shuttle::future::yield_now().await;
            store.release_now(&claim)
        })
    }

    async fn inspect(&self, name: &LockName) -> Result<LockState, Error> {
        self.inner.inspect(name).await
    }
}
