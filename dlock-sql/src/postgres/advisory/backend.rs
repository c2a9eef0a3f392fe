//! The session's locks as a backend.

use std::{fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use dlock_core::{
    AcquireRequest, Acquired, Admin, Answer, Backend, Claim, ClaimId, ClaimState, Error, ErrorKind,
    Fencing, Finding, Grant, Guarantees, LockName, LockState, Mode, OrphanRelease, Queue, Released,
    Renewal, Renewed, Scope,
};
use tokio::{runtime::Handle, sync::oneshot};

use super::session::{Ask, Reply, Session};
use crate::{
    engine::{Lanes, answer_of, gone, lanes, spawn},
    plain::Pauses,
    postgres::link::Link,
};

/// A backend over one session. Its task ends when it and the answers that it gave are dropped.
pub(crate) struct Advisory {
    store: Arc<str>,
    asks: Asks,
    patience: Duration,
}

#[derive(Clone)]
struct Asks(Lanes<Ask>);

impl Asks {
    async fn ask<T>(&self, ask: impl FnOnce(Reply<T>) -> Ask) -> Result<T, Error> {
        let (reply, answer) = oneshot::channel();
        let ask = ask(reply);
        let lane = self.0.of(&ask);
        lane.send(ask).await.map_err(|_| gone())?;
        answer_of(answer, lane).await.unwrap_or_else(|| Err(gone()))
    }

    async fn take(&self, request: &AcquireRequest) -> Result<Acquired, Error> {
        if request.mode != Mode::Exclusive {
            return Err(Error::new(
                ErrorKind::Unsupported,
                "the advisory mode (dlock.advisory) is for the mutex only: leave it away for \
                 readers and permits",
            ));
        }
        let (name, claim, lease) = (request.name.clone(), request.claim, request.lease);
        self.ask(|reply| Ask::Take { name, claim, lease, reply }).await
    }
}

impl Advisory {
    /// Starts the task. The link leads to a session of its own, and is open.
    pub(in crate::postgres) fn start(
        runtime: &Handle,
        store: Arc<str>,
        link: Link,
        patience: Duration,
        retention: Duration,
    ) -> Self {
        let (sender, asks) = lanes();
        spawn(runtime, Session::new(link, asks, patience, retention).run());
        Self { store, asks: Asks(sender), patience }
    }

    fn named(&self, error: Error, verb: &'static str, name: &LockName) -> Error {
        error.during(verb).with_lock(name).with_store(&self.store)
    }
}

#[async_trait]
impl Backend for Advisory {
    fn store(&self) -> &str {
        &self.store
    }

    fn guarantees(&self) -> Guarantees {
        Guarantees::WEAKEST
            .with_fencing(Fencing::Clock)
            .with_orphan_release(OrphanRelease::SessionEnd)
            .with_scope(Scope::Network)
    }

    fn response_timeout(&self) -> Duration {
        self.patience
    }

    fn acquire(&self, request: &AcquireRequest) -> Answer<Acquired> {
        let (asks, store, request) = (self.asks.clone(), self.store.clone(), request.clone());
        Answer::later(async move {
            match asks.take(&request).await {
                Ok(Acquired::Busy) if request.queue == Queue::Enqueue => Ok(Acquired::Queued),
                Ok(answer) => Ok(answer),
                Err(error) => {
                    Err(error.during("acquire").with_lock(&request.name).with_store(&store))
                }
            }
        })
    }

    async fn granted(&self, request: &AcquireRequest) -> Result<Grant, Error> {
        let mut pauses = Pauses::new(request.lease);
        loop {
            match self.asks.take(request).await {
                Ok(Acquired::Granted(grant)) => return Ok(grant),
                Ok(_) => tokio::time::sleep(pauses.next()).await,
                Err(error) => return Err(self.named(error, "acquire", &request.name)),
            }
        }
    }

    async fn renew(&self, renewals: &[Renewal]) -> Result<Vec<Renewed>, Error> {
        let claims: Vec<_> = renewals
            .iter()
            .map(|Renewal { claim, lease, .. }| (claim.name.clone(), claim.id, *lease))
            .collect();
        let kept = self.asks.ask(|reply| Ask::Renew { claims, reply }).await;
        let kept = kept.map_err(|error| error.during("renew").with_store(&self.store))?;
        let of = |kept: bool| if kept { Renewed::Kept } else { Renewed::Lost };
        Ok(kept.into_iter().map(of).collect())
    }

    fn release(&self, claim: &Claim) -> Answer<Released> {
        let (asks, store) = (self.asks.clone(), self.store.clone());
        let (name, claim) = (claim.name.clone(), claim.id);
        Answer::later(async move {
            let released = asks.ask(|reply| Ask::GiveBack { name: name.clone(), claim, reply });
            released
                .await
                .map_err(|error| error.during("release").with_lock(&name).with_store(&store))
        })
    }

    async fn inspect(&self, name: &LockName) -> Result<LockState, Error> {
        let seen = self.asks.ask(|reply| Ask::Look { name: name.clone(), reply }).await;
        let seen = seen.map_err(|error| self.named(error, "inspect", name))?;
        let holders = seen.is_held.then(|| {
            // The server knows the session of another holder, not its claim.
            let claim = seen.claim.unwrap_or(ClaimId::from_bits(0));
            // It stays as long as the session.
            ClaimState::new(claim, Mode::Exclusive, seen.token, Duration::MAX)
        });
        Ok(LockState::new(holders.into_iter().collect(), Vec::new(), seen.token))
    }

    fn admin(&self) -> Option<&dyn Admin> {
        Some(self)
    }
}

#[async_trait]
impl Admin for Advisory {
    async fn examine(&self) -> Result<Vec<Finding>, Error> {
        // A look that takes too long would end the session, and with it all its locks.
        Ok(vec![Finding::warning(
            "mode",
            "in the advisory mode nothing is looked at, since all locks are on one connection",
            "open the same database without dlock.advisory, and look there",
        )])
    }

    async fn list(&self, _: &str, _: usize) -> Result<Vec<LockName>, Error> {
        let error = Error::new(
            ErrorKind::Unsupported,
            "the server knows advisory locks (dlock.advisory) by hashes of their names and can't \
             list the names: inspect them one by one",
        );
        Err(error.during("list").with_store(&self.store))
    }
}

impl fmt::Debug for Advisory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Advisory").field("store", &self.store).finish_non_exhaustive()
    }
}
