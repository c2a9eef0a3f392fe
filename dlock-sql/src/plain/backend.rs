//! A scheme as a backend.

use std::{fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use dlock_core::{
    AcquireRequest, Acquired, Admin, Answer, Backend, Claim, ClaimId, ClaimState, Error, ErrorKind,
    Finding, Grant, Guarantees, LockName, LockState, Mode, Queue, Released, Renewal, Renewed,
};
use tokio::{runtime::Handle, sync::oneshot};

use super::{
    PlainConn, Scheme, Statements,
    pauses::Pauses,
    scheme::Want,
    worker::{Ask, Reply, Worker},
};
use crate::engine::{Kept, Lanes, answer_of, gone, lanes, list, spawn};

/// A backend over plain rows. Its task ends when it and the answers that it gave are dropped.
pub(crate) struct PlainStore {
    store: Arc<str>,
    scheme: Scheme,
    /// What the database promises at best, and whether it still does.
    database: (Guarantees, Kept),
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
                "the plain form (dlock.plain) is for the mutex only: leave it away for readers and \
                 permits",
            ));
        }
        let want = Want { name: request.name.clone(), claim: request.claim, lease: request.lease };
        self.ask(|reply| Ask::Take(want, reply)).await
    }
}

impl PlainStore {
    /// Starts the task. `store` names the database, without secrets; `database` is what it promises
    /// at best, and whether it still does.
    pub(crate) fn start<C: PlainConn>(
        runtime: &Handle,
        store: Arc<str>,
        database: (Guarantees, Kept),
        conn: C,
        scheme: Scheme,
        texts: Statements,
        patience: Duration,
    ) -> Self {
        let (sender, asks) = lanes();
        let kept = database.1.clone();
        spawn(runtime, Worker::new(conn, asks, scheme, texts, patience, kept).run());
        Self { store, scheme, database, asks: Asks(sender), patience }
    }

    fn named(&self, error: Error, verb: &'static str, name: &LockName) -> Error {
        error.during(verb).with_lock(name).with_store(&self.store)
    }
}

#[async_trait]
impl Backend for PlainStore {
    fn store(&self) -> &str {
        &self.store
    }

    fn guarantees(&self) -> Guarantees {
        let (best, kept) = &self.database;
        self.scheme.guarantees(kept.promised(*best))
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
        let mut renewed = Vec::with_capacity(renewals.len());
        let (mut failed, mut last) = (0, None);
        for Renewal { claim, lease, .. } in renewals {
            let want = Want { name: claim.name.clone(), claim: claim.id, lease: *lease };
            renewed.push(match self.asks.ask(|reply| Ask::Renew(want, reply)).await {
                Ok(true) => Renewed::Kept,
                Ok(false) => Renewed::Lost,
                Err(error) => {
                    failed += 1;
                    last = Some(self.named(error, "renew", &claim.name));
                    Renewed::Unknown
                }
            });
        }
        last.filter(|_| failed == renewals.len()).map_or(Ok(renewed), Err)
    }

    fn release(&self, claim: &Claim) -> Answer<Released> {
        let (asks, store, claim) = (self.asks.clone(), self.store.clone(), claim.clone());
        Answer::later(async move {
            let name = claim.name.clone();
            asks.ask(|reply| Ask::GiveBack(name, claim.id, reply))
                .await
                .map_err(|error| error.during("release").with_lock(&claim.name).with_store(&store))
        })
    }

    async fn inspect(&self, name: &LockName) -> Result<LockState, Error> {
        let seen = self.asks.ask(|reply| Ask::Look(name.clone(), reply)).await;
        let seen = seen.map_err(|error| self.named(error, "inspect", name))?;
        let Some(seen) = seen.row.filter(|seen| seen.is_held && seen.left > 0) else {
            return Ok(LockState::default());
        };
        // Another program's name for itself is no claim of dlock's.
        let claim = seen.holder.parse().unwrap_or(ClaimId::from_bits(0));
        let remaining = Duration::from_micros(u64::try_from(seen.left).unwrap_or(0));
        let holder = ClaimState::new(claim, Mode::Exclusive, None, remaining);
        Ok(LockState::new(vec![holder], Vec::new(), None))
    }

    fn admin(&self) -> Option<&dyn Admin> {
        Some(self)
    }
}

#[async_trait]
impl Admin for PlainStore {
    async fn examine(&self) -> Result<Vec<Finding>, Error> {
        self.asks
            .ask(Ask::Findings)
            .await
            .map_err(|error| error.during("examine").with_store(&self.store))
    }

    async fn list(&self, prefix: &str, limit: usize) -> Result<Vec<LockName>, Error> {
        let page = |range| self.asks.ask(|reply| Ask::Names(range, reply));
        list(prefix, limit, page)
            .await
            .map_err(|error| error.during("list").with_store(&self.store))
    }
}

impl fmt::Debug for PlainStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PlainStore").field("store", &self.store).finish_non_exhaustive()
    }
}
