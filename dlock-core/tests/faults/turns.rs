//! A store that serves one acquire after the other, for more tasks than it can serve in time.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use async_trait::async_trait;
use dlock_core::*;
use tokio::{
    sync::Semaphore,
    task::JoinSet,
    time::{Instant as Timer, sleep, timeout},
};

use crate::support::{millis, secs};

const RESPONSE_TIMEOUT: Duration = Duration::from_secs(2);
/// The time that it takes to serve one acquire.
const TAKES: Duration = Duration::from_millis(25);
/// The tasks. The store can serve 90 of them within the response timeout.
const TASKS: usize = 300;

/// Memory under tokio's clock, whose client sends one acquire at a time.
#[derive(Debug)]
struct OneByOne {
    inner: Arc<Memory>,
    turn: Arc<Semaphore>,
    /// The numbers of requests that were sent.
    acquires: Arc<AtomicUsize>,
    releases: AtomicUsize,
    /// Whether the answer to the first acquire is lost.
    loses_first: AtomicBool,
}

impl OneByOne {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            inner: Memory::with_clock(Clock::tokio()),
            turn: Arc::new(Semaphore::new(1)),
            acquires: Arc::default(),
            releases: AtomicUsize::new(0),
            loses_first: AtomicBool::new(false),
        })
    }

    /// Sends a request when it is its turn.
    fn send<T: Send + 'static>(
        &self,
        request: impl FnOnce(&Memory) -> Answer<T> + Send + 'static,
    ) -> Answer<T> {
        let (inner, turn, acquires) =
            (self.inner.clone(), self.turn.clone(), self.acquires.clone());
        let loses_first = self.loses_first.load(SeqCst);
        Answer::unsent(move |flag| async move {
            let _turn = turn.acquire().await.unwrap();
            assert!(flag.begin(), "it is polled after it was given up");
            let is_first = acquires.fetch_add(1, SeqCst) == 0;
            sleep(TAKES).await;
            let answer = request(&inner).await;
            match loses_first && is_first {
                true => Err(Error::new(ErrorKind::Unavailable, "lost by the test")),
                false => answer,
            }
        })
    }

    fn requests(&self) -> (usize, usize) {
        (self.acquires.load(SeqCst), self.releases.load(SeqCst))
    }
}

#[async_trait]
impl Backend for OneByOne {
    fn store(&self) -> &str {
        self.inner.store()
    }
    fn guarantees(&self) -> Guarantees {
        self.inner.guarantees()
    }
    fn clock(&self) -> Clock {
        self.inner.clock()
    }
    fn response_timeout(&self) -> Duration {
        RESPONSE_TIMEOUT
    }
    fn acquire(&self, request: &AcquireRequest) -> Answer<Acquired> {
        let request = request.clone();
        self.send(move |store| store.acquire(&request))
    }
    async fn granted(&self, request: &AcquireRequest) -> Result<Grant, Error> {
        self.inner.granted(request).await
    }
    async fn renew(&self, renewals: &[Renewal]) -> Result<Vec<Renewed>, Error> {
        self.inner.renew(renewals).await
    }
    fn release(&self, claim: &Claim) -> Answer<Released> {
        self.releases.fetch_add(1, SeqCst);
        self.inner.release(claim)
    }
    async fn inspect(&self, name: &LockName) -> Result<LockState, Error> {
        self.inner.inspect(name).await
    }
    fn acquire_all(&self, requests: &[AcquireRequest]) -> Option<Answer<Vec<Acquired>>> {
        let requests = requests.to_vec();
        Some(self.send(move |store| store.acquire_all(&requests).unwrap()))
    }
}

fn client(store: &Arc<OneByOne>) -> Locks {
    Locks::new(store.clone()).unwrap()
}

/// Runs tasks that take and release locks of their own names without a pause. Returns how many
/// locks they have taken in the second half of this time.
async fn taken_by_many(locks: &Locks, wait: Duration, time: Duration) -> usize {
    let (half, taken) = (Timer::now() + time / 2, Arc::new(AtomicUsize::new(0)));
    let mut tasks = JoinSet::new();
    for at in 0..TASKS {
        let options = LockOptions::new().with_wait(wait);
        let mutex = locks.with_options(options).unwrap().mutex(format!("task/{at}")).unwrap();
        let taken = taken.clone();
        // Not all at once: then the time of the first request in the queue is always nearly over.
        let begins = RESPONSE_TIMEOUT * u32::try_from(at).unwrap() / u32::try_from(TASKS).unwrap();
        tasks.spawn(async move {
            sleep(begins).await;
            loop {
                if let Ok(guard) = mutex.lock().await {
                    taken.fetch_add(usize::from(Timer::now() > half), SeqCst);
                    guard.release().await.unwrap();
                }
            }
        });
    }
    sleep(time).await;
    tasks.shutdown().await;
    taken.load(SeqCst)
}

#[tokio::test(start_paused = true)]
async fn a_store_with_too_many_tasks_serves_as_many_as_it_can() {
    // One attempt, and a limit of the wait.
    for wait in [Duration::ZERO, secs(2)] {
        let store = OneByOne::new();
        let locks = client(&store);
        let taken = taken_by_many(&locks, wait, secs(20)).await;
        // It can serve 400 in ten seconds.
        assert!(taken > 300, "only {taken} locks were taken with a wait of {wait:?}");
        let free = locks.mutex("free").unwrap();
        let soon = timeout(secs(1), free.try_lock()).await.expect("old requests go first");
        assert!(soon.unwrap().is_some(), "it is free");
        let (acquires, _) = store.requests();
        assert!(acquires < 900, "{acquires} requests were sent in 21 s");
    }
}

#[tokio::test(start_paused = true)]
async fn an_acquire_whose_caller_has_gone_is_not_sent() {
    let store = OneByOne::new();
    let locks = client(&store);
    let turn = store.turn.clone().acquire_owned().await.unwrap();
    let (mutex, multi) = (locks.mutex("a").unwrap(), locks.multi(["b", "c"]).unwrap());
    assert!(timeout(millis(10), mutex.lock()).await.is_err());
    assert!(timeout(millis(10), multi.lock()).await.is_err());
    for error in [mutex.try_lock().await.unwrap_err(), multi.try_lock().await.unwrap_err()] {
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert_eq!(error.certainty(), Certainty::NotApplied);
        assert!(error.to_string().contains("not sent within the response timeout"), "{error}");
    }
    let waits = [mutex.lock_timeout(secs(1)).await, multi.lock_timeout(secs(1)).await];
    for error in waits.map(Result::unwrap_err) {
        assert_eq!(error.kind(), ErrorKind::Timeout);
        assert!(error.to_string().contains("so this one was not sent"), "{error}");
    }
    drop(turn);
    sleep(secs(5)).await;
    assert_eq!(store.requests(), (0, 0));
    locks.shutdown(Duration::ZERO).await.unwrap();
}

/// The store delays one request. The next one is answered soon after it, within its wait.
#[tokio::test(start_paused = true)]
async fn a_short_wait_outlasts_a_request_that_is_delayed() {
    let store = OneByOne::new();
    let locks = client(&store);
    let mutex = locks.mutex("a").unwrap();
    let turn = store.turn.clone().acquire_owned().await.unwrap();
    let delayed = async {
        sleep(millis(600)).await;
        drop(turn);
    };
    let ((), taken) = tokio::join!(delayed, mutex.lock_timeout(secs(1)));
    taken.unwrap().release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_acquire_that_was_sent_is_released_after_its_answer() {
    let store = OneByOne::new();
    let locks = client(&store);
    let (mutex, multi) = (locks.mutex("a").unwrap(), locks.multi(["b", "c"]).unwrap());
    assert!(timeout(TAKES / 2, mutex.lock()).await.is_err());
    sleep(TAKES).await;
    assert_eq!(store.requests(), (1, 1));
    assert!(timeout(TAKES / 2, multi.lock()).await.is_err());
    sleep(TAKES).await;
    assert_eq!(store.requests(), (2, 3));
    for name in ["a", "b", "c"] {
        assert!(locks.inspect(name).await.unwrap().is_free(), "{name}");
    }
}

/// A retry of a claim whose first request may have taken effect waits for its turn.
#[tokio::test(start_paused = true)]
async fn a_retry_that_is_given_up_leaves_no_claim() {
    let store = OneByOne::new();
    let name = LockName::new("a").unwrap();
    store.loses_first.store(true, SeqCst);
    let locks = client(&store);
    let mutex = locks.mutex(&name).unwrap();
    // Waits while the first request is under way, so that the retry waits for its turn.
    let holds_the_turn = async {
        sleep(TAKES / 2).await;
        let turn = store.turn.acquire().await;
        std::future::pending::<()>().await;
        drop(turn);
    };
    let waits = async { tokio::join!(holds_the_turn, mutex.lock()) };
    assert!(timeout(millis(200), waits).await.is_err());
    sleep(secs(1)).await;
    assert_eq!(store.acquires.load(SeqCst), 1);
    assert!(store.inspect(&name).await.unwrap().is_free());
}
