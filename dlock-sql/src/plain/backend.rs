//! A backend with the mutex only, over a task that owns one connection: the plain schemes, and
//! locks of a session.
//!
//! There is no queue. A waiter polls with the same claim, so if the answer to a grant is lost, the
//! next poll finds the lock. If the process dies, the lease or the session ends.
//!
//! Each request has a oneshot for its answer. A caller may stop waiting at any time: a request to
//! take a lock is then skipped if it has not begun, and a release is always done. The flag of an
//! acquire tells the core whether it has begun, and so needs a release.

use std::{fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use dlock_core::{
    AcquireRequest, Acquired, Admin, Answer, Backend, Backoff, Claim, ClaimId, Error, ErrorKind,
    Finding, Grant, Guarantees, LockName, LockState, Mode, Queue, Released, Renewal, Renewed,
    SendFlag,
};
use tokio::{runtime::Handle, sync::oneshot};

use crate::engine::{
    Ends, Lanes, Listed, Message, Range, Reply, answer_of, gone, lanes, list, spawn,
};

/// A backend over a task that serves one request after another. The task ends when the backend and
/// its answers are dropped.
pub(crate) struct MutexStore {
    store: Arc<str>,
    form: Form,
    requests: Requests,
    response_timeout: Duration,
}

/// The differences between such backends.
pub(crate) struct Form {
    /// Its name, with the option that chooses it, for messages.
    pub(crate) name: &'static str,
    /// The part of the store's name that tells its locks from those of the tables.
    pub(crate) suffix: &'static str,
    /// The number of claims in one renewal, at least one.
    pub(crate) together: usize,
    /// The current guarantees.
    pub(crate) promises: Box<dyn Fn() -> Guarantees + Send + Sync>,
}

/// A request, and the channel for its answer.
#[derive(Debug)]
pub(crate) enum MutexRequest {
    Acquire(AcquireRequest, SendFlag, Reply<Acquired>),
    /// Renews the leases of these claims. The answer says for each whether it is held.
    Renew(Vec<Renewal>, Reply<Vec<bool>>),
    Release(LockName, ClaimId, Reply<Released>),
    Inspect(LockName, Reply<LockState>),
    List(Range, Reply<Vec<Listed>>),
    Examine(Reply<Vec<Finding>>),
}

impl Message for MutexRequest {
    fn is_urgent(&self) -> bool {
        matches!(self, Self::Renew(..) | Self::Release(..))
    }
}

/// The verbs of a mutex. The task that owns this completes a verb that it has begun, even if the
/// caller stops waiting.
pub(crate) trait MutexTask: Send {
    fn acquire(
        &mut self,
        request: &AcquireRequest,
    ) -> impl Future<Output = Result<Acquired, Error>> + Send;

    /// Returns for each claim whether it is held.
    fn renew(
        &mut self,
        renewals: &[Renewal],
    ) -> impl Future<Output = Result<Vec<bool>, Error>> + Send;

    fn release(
        &mut self,
        name: &LockName,
        claim: ClaimId,
    ) -> impl Future<Output = Result<Released, Error>> + Send;

    fn inspect(&mut self, name: &LockName)
    -> impl Future<Output = Result<LockState, Error>> + Send;

    fn list(&mut self, range: &Range) -> impl Future<Output = Result<Vec<Listed>, Error>> + Send;

    fn examine(&mut self) -> impl Future<Output = Result<Vec<Finding>, Error>> + Send;

    /// Serves one request. The caller may have stopped waiting.
    fn serve(&mut self, request: MutexRequest) -> impl Future<Output = ()> + Send {
        async move {
            // An error of `send` means that the caller has stopped waiting.
            match request {
                MutexRequest::Acquire(request, flag, reply) => {
                    if !reply.is_closed() && flag.begin() {
                        let _ = reply.send(self.acquire(&request).await);
                    }
                }
                MutexRequest::Renew(_, reply) if reply.is_closed() => {}
                MutexRequest::Renew(renewals, reply) => {
                    let _ = reply.send(self.renew(&renewals).await);
                }
                MutexRequest::Release(name, claim, reply) => {
                    let _ = reply.send(self.release(&name, claim).await);
                }
                MutexRequest::Inspect(name, reply) => {
                    let _ = reply.send(self.inspect(&name).await);
                }
                MutexRequest::List(range, reply) => {
                    let _ = reply.send(self.list(&range).await);
                }
                MutexRequest::Examine(reply) => {
                    let _ = reply.send(self.examine().await);
                }
            }
        }
    }
}

/// The callers' end of the task's queue.
#[derive(Clone)]
struct Requests(Lanes<MutexRequest>);

impl Requests {
    async fn send<T>(&self, request: impl FnOnce(Reply<T>) -> MutexRequest) -> Result<T, Error> {
        let (reply, answer) = oneshot::channel();
        let request = request(reply);
        let lane = self.0.of(&request);
        lane.send(request).await.map_err(|_| gone())?;
        answer_of(answer, lane).await.unwrap_or_else(|| Err(gone()))
    }

    async fn acquire(
        &self,
        form: &str,
        request: &AcquireRequest,
        flag: SendFlag,
    ) -> Result<Acquired, Error> {
        if request.mode != Mode::Exclusive {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!("{form} supports only the mutex: remove it to use readers and permits"),
            ));
        }
        self.send(|reply| MutexRequest::Acquire(request.clone(), flag, reply)).await
    }
}

impl MutexStore {
    /// Starts the task. `database` names the database, without secrets.
    pub(crate) fn start<T: Future<Output = ()> + Send + 'static>(
        runtime: &Handle,
        database: &str,
        form: Form,
        response_timeout: Duration,
        task: impl FnOnce(Ends<MutexRequest>) -> T,
    ) -> Self {
        let (lanes, ends) = lanes();
        spawn(runtime, task(ends));
        let store = format!("{database} ({})", form.suffix).into();
        Self { store, form, requests: Requests(lanes), response_timeout }
    }
}

#[async_trait]
impl Backend for MutexStore {
    fn store(&self) -> &str {
        &self.store
    }

    fn guarantees(&self) -> Guarantees {
        (self.form.promises)()
    }

    fn response_timeout(&self) -> Duration {
        self.response_timeout
    }

    fn acquire(&self, request: &AcquireRequest) -> Answer<Acquired> {
        // The answer owns clones, so it runs to its end even if the caller drops it.
        let (requests, request, form) = (self.requests.clone(), request.clone(), self.form.name);
        Answer::unsent(|flag| async move {
            match requests.acquire(form, &request, flag).await {
                // There is no queue in the table. For the core, a waiter that polls is queued.
                Ok(Acquired::Busy) if request.queue == Queue::Enqueue => Ok(Acquired::Queued),
                answer => answer,
            }
        })
    }

    async fn granted(&self, request: &AcquireRequest) -> Result<Grant, Error> {
        // Each poll is a complete acquire with the same claim, which is idempotent.
        let mut pause = Backoff::of_polls(request.lease);
        loop {
            match self.requests.acquire(self.form.name, request, SendFlag::new()).await? {
                Acquired::Granted(grant) => return Ok(grant),
                _ => pause.wait().await,
            }
        }
    }

    async fn renew(&self, renewals: &[Renewal]) -> Result<Vec<Renewed>, Error> {
        let mut renewed = Vec::with_capacity(renewals.len());
        let (mut failed, mut last) = (0, None);
        // A failed part leaves its claims unknown, and the others keep their answers.
        for part in renewals.chunks(self.form.together) {
            match self.requests.send(|reply| MutexRequest::Renew(part.to_vec(), reply)).await {
                Ok(kept) => {
                    let of = |kept| if kept { Renewed::Kept } else { Renewed::Lost };
                    renewed.extend(kept.into_iter().map(of));
                }
                Err(error) => {
                    failed += part.len();
                    last = Some(error.with_lock(&part[0].claim.name));
                    renewed.resize(renewed.len() + part.len(), Renewed::Unknown);
                }
            }
        }
        last.filter(|_| failed == renewals.len()).map_or(Ok(renewed), Err)
    }

    fn release(&self, claim: &Claim) -> Answer<Released> {
        let (requests, name, id) = (self.requests.clone(), claim.name.clone(), claim.id);
        Answer::later(
            async move { requests.send(|reply| MutexRequest::Release(name, id, reply)).await },
        )
    }

    async fn inspect(&self, name: &LockName) -> Result<LockState, Error> {
        self.requests.send(|reply| MutexRequest::Inspect(name.clone(), reply)).await
    }

    fn admin(&self) -> Option<&dyn Admin> {
        Some(self)
    }
}

#[async_trait]
impl Admin for MutexStore {
    async fn examine(&self) -> Result<Vec<Finding>, Error> {
        self.requests.send(MutexRequest::Examine).await
    }

    async fn list(&self, prefix: &str, limit: usize) -> Result<Vec<LockName>, Error> {
        let page = |range| self.requests.send(|reply| MutexRequest::List(range, reply));
        list(prefix, limit, page).await
    }
}

impl fmt::Debug for MutexStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MutexStore").field("store", &self.store).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::{
        pin::{Pin, pin},
        task::{Context, Waker},
    };

    use dlock_core::{Clock, FencingToken, Locks};
    use parking_lot::Mutex;
    use tokio::sync::Semaphore;

    use super::*;

    /// The requests that the task has begun, in order.
    type Begun = Arc<Mutex<Vec<String>>>;

    /// A task that answers an acquire for each permit.
    struct GatedTask {
        gate: Arc<Semaphore>,
        begun: Begun,
    }

    impl MutexTask for GatedTask {
        async fn acquire(&mut self, request: &AcquireRequest) -> Result<Acquired, Error> {
            self.begun.lock().push(format!("acquire {}", request.name));
            self.gate.acquire().await.unwrap().forget();
            Ok(Acquired::Granted(Grant::new(FencingToken::new(1)?, 1, Clock::Boot.now())))
        }

        async fn renew(&mut self, renewals: &[Renewal]) -> Result<Vec<bool>, Error> {
            Ok(vec![true; renewals.len()])
        }

        async fn release(&mut self, name: &LockName, _: ClaimId) -> Result<Released, Error> {
            self.begun.lock().push(format!("release {name}"));
            Ok(Released::Released)
        }

        async fn inspect(&mut self, _: &LockName) -> Result<LockState, Error> {
            Ok(LockState::default())
        }

        async fn list(&mut self, _: &Range) -> Result<Vec<Listed>, Error> {
            Ok(Vec::new())
        }

        async fn examine(&mut self) -> Result<Vec<Finding>, Error> {
            Ok(Vec::new())
        }
    }

    fn locks(gate: &Arc<Semaphore>, begun: &Begun) -> Locks {
        let mut task = GatedTask { gate: gate.clone(), begun: begun.clone() };
        let promises = Box::new(|| Guarantees::WEAKEST);
        let form = Form { name: "the form of the test", suffix: "test", together: 1, promises };
        let (runtime, timeout) = (Handle::current(), Duration::from_secs(600));
        let store =
            MutexStore::start(&runtime, "db", form, timeout, move |mut requests| async move {
                while let Some(request) = requests.recv().await {
                    task.serve(request).await;
                }
            });
        Locks::new(Arc::new(store)).unwrap()
    }

    async fn until_begun(begun: &Begun, request: &str) {
        while !begun.lock().iter().any(|one| one == request) {
            tokio::task::yield_now().await;
        }
    }

    fn is_pending(future: Pin<&mut impl Future>) -> bool {
        future.poll(&mut Context::from_waker(Waker::noop())).is_pending()
    }

    #[tokio::test]
    async fn an_acquire_without_a_caller_is_not_begun() {
        let (gate, begun) = (Arc::new(Semaphore::new(0)), Begun::default());
        let locks = locks(&gate, &begun);
        let [a, b, c] = ["a", "b", "c"].map(|name| locks.mutex(name).unwrap());
        let mut first = pin!(a.try_lock());
        assert!(is_pending(first.as_mut()));
        until_begun(&begun, "acquire a").await;
        {
            let mut dropped = pin!(b.try_lock());
            assert!(is_pending(dropped.as_mut()), "the task is busy");
        }
        gate.add_permits(9);
        let _held = [first.await.unwrap().unwrap(), c.try_lock().await.unwrap().unwrap()];
        assert_eq!(*begun.lock(), ["acquire a", "acquire c"]);
    }

    #[tokio::test]
    async fn an_acquire_that_has_begun_is_released() {
        let (gate, begun) = (Arc::new(Semaphore::new(0)), Begun::default());
        let locks = locks(&gate, &begun);
        let mutex = locks.mutex("a").unwrap();
        {
            let mut dropped = pin!(mutex.try_lock());
            assert!(is_pending(dropped.as_mut()));
            until_begun(&begun, "acquire a").await;
        }
        gate.add_permits(1);
        until_begun(&begun, "release a").await;
    }
}
