//! A backend with the mutex only: the plain schemes, and locks of a session.
//!
//! There is no queue. A waiter polls with the same claim, so if the answer to a grant is lost, the
//! next poll finds the lock. If the process dies, the lease or the session ends.

use std::{fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use dlock_core::{
    AcquireRequest, Acquired, Admin, Answer, Backend, Claim, Error, Finding, Grant, Guarantees,
    LockName, LockState, Queue, Released, Renewal, Renewed,
};
use tokio::runtime::Handle;

use super::{
    pauses::Pauses,
    request::{MutexRequest, Requests, Want},
};
use crate::engine::{Ends, lanes, list, spawn};

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
    /// Its name, with the option that chooses it.
    pub(crate) name: &'static str,
    /// The number of claims in one renewal, at least one.
    pub(crate) together: usize,
    /// The current guarantees.
    pub(crate) promises: Box<dyn Fn() -> Guarantees + Send + Sync>,
}

impl MutexStore {
    /// Starts the task. `store` names the database, without secrets.
    pub(crate) fn start<T: Future<Output = ()> + Send + 'static>(
        runtime: &Handle,
        store: Arc<str>,
        form: Form,
        response_timeout: Duration,
        task: impl FnOnce(Ends<MutexRequest>) -> T,
    ) -> Self {
        let (lanes, ends) = lanes();
        spawn(runtime, task(ends));
        let requests = Requests { lanes, form: form.name };
        Self { store, form, requests, response_timeout }
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
        let (requests, store, request) =
            (self.requests.clone(), self.store.clone(), request.clone());
        Answer::later(async move {
            match requests.acquire(&request).await {
                // There is no queue in the table. For the core, a waiter that polls is queued.
                Ok(Acquired::Busy) if request.queue == Queue::Enqueue => Ok(Acquired::Queued),
                Ok(answer) => Ok(answer),
                Err(error) => Err(error.at("acquire", &request.name, &store)),
            }
        })
    }

    async fn granted(&self, request: &AcquireRequest) -> Result<Grant, Error> {
        let with_context = |error: Error| error.at("acquire", &request.name, &self.store);
        // Each poll is a complete acquire with the same claim, which is idempotent.
        let mut pauses = Pauses::new(request.lease);
        loop {
            match self.requests.acquire(request).await.map_err(with_context)? {
                Acquired::Granted(grant) => return Ok(grant),
                _ => tokio::time::sleep(pauses.next()).await,
            }
        }
    }

    async fn renew(&self, renewals: &[Renewal]) -> Result<Vec<Renewed>, Error> {
        let mut renewed = Vec::with_capacity(renewals.len());
        let (mut failed, mut last) = (0, None);
        // A failed part leaves its claims unknown, and the others keep their answers.
        for part in renewals.chunks(self.form.together) {
            let want = |renewal: &Renewal| Want {
                name: renewal.claim.name.clone(),
                claim: renewal.claim.id,
                lease: renewal.lease,
                is_last: renewal.is_last,
            };
            let wants = part.iter().map(want).collect();
            match self.requests.send(|reply| MutexRequest::Renew(wants, reply)).await {
                Ok(kept) => {
                    let of = |kept| if kept { Renewed::Kept } else { Renewed::Lost };
                    renewed.extend(kept.into_iter().map(of));
                }
                Err(error) => {
                    failed += part.len();
                    last = Some(error.at("renew", &part[0].claim.name, &self.store));
                    renewed.resize(renewed.len() + part.len(), Renewed::Unknown);
                }
            }
        }
        last.filter(|_| failed == renewals.len()).map_or(Ok(renewed), Err)
    }

    fn release(&self, claim: &Claim) -> Answer<Released> {
        let (requests, store, claim) = (self.requests.clone(), self.store.clone(), claim.clone());
        Answer::later(async move {
            let name = claim.name.clone();
            let released =
                requests.send(|reply| MutexRequest::Release(name, claim.id, reply)).await;
            released.map_err(|error| error.at("release", &claim.name, &store))
        })
    }

    async fn inspect(&self, name: &LockName) -> Result<LockState, Error> {
        let seen = self.requests.send(|reply| MutexRequest::Inspect(name.clone(), reply)).await;
        seen.map_err(|error| error.at("inspect", name, &self.store))
    }

    fn admin(&self) -> Option<&dyn Admin> {
        Some(self)
    }
}

#[async_trait]
impl Admin for MutexStore {
    async fn examine(&self) -> Result<Vec<Finding>, Error> {
        self.requests
            .send(MutexRequest::Examine)
            .await
            .map_err(|error| error.during("examine").with_store(&self.store))
    }

    async fn list(&self, prefix: &str, limit: usize) -> Result<Vec<LockName>, Error> {
        let page = |range| self.requests.send(|reply| MutexRequest::List(range, reply));
        list(prefix, limit, page)
            .await
            .map_err(|error| error.during("list").with_store(&self.store))
    }
}

impl fmt::Debug for MutexStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MutexStore").field("store", &self.store).finish_non_exhaustive()
    }
}
