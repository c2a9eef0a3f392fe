//! The task that owns the connection. It serves the requests one after another, renewals and
//! releases first. It completes a request that it has begun even if the caller stops waiting.

use std::{sync::Arc, time::Duration};

use dlock_core::{
    Acquired, Certainty, ClaimId, ClaimState, Clock, Error, Exclusion, Finding, Guarantees,
    Instant, LockName, LockState, Mode, Released, Scope, StoreClock,
};
use tokio::{runtime::Handle, select};

use super::{
    PlainConn, Scheme, Statements,
    backend::{Form, MutexStore},
    deferred_release::DeferredReleases,
    request::{MutexRequest, Want},
    table::PlainTable,
};
use crate::engine::{DurabilityMonitor, Ends, Listed, PAGE, Range, RetryBudget, retry};

/// Starts a backend over plain rows. `durability` records whether the database keeps the writes
/// that it has answered.
pub(crate) fn start<C: PlainConn>(
    runtime: &Handle,
    store: Arc<str>,
    durability: DurabilityMonitor,
    conn: C,
    scheme: Scheme,
    texts: Statements,
    response_timeout: Duration,
) -> MutexStore {
    let best = Guarantees::WEAKEST.with_exclusion(Exclusion::Restart).with_scope(Scope::Network);
    let seen = durability.clone();
    let promises = Box::new(move || scheme.guarantees(seen.promised(best)));
    let form = Form { name: "the plain form (dlock.plain)", together: 1, promises };
    MutexStore::start(runtime, store, form, response_timeout, |requests| {
        let table = PlainTable { conn, texts, response_timeout, clock: StoreClock::new() };
        PlainWorker { table, requests, scheme, deferred: DeferredReleases::default(), durability }
            .run()
    })
}

#[derive(Debug)]
struct PlainWorker<C> {
    table: PlainTable<C>,
    requests: Ends<MutexRequest>,
    scheme: Scheme,
    deferred: DeferredReleases,
    durability: DurabilityMonitor,
}

impl<C: PlainConn> PlainWorker<C> {
    /// Works until the last caller is dropped.
    async fn run(mut self) {
        if let Ok(name) = LockName::new("dlock") {
            // The answer shows the clock. If the read fails, the first statement is refused because
            // of its deadline, and its answer shows the clock.
            let _ = self.table.read(&name).await;
        }
        let mut is_open = true;
        while is_open || self.deferred.due().is_some() {
            let due = self.deferred.due();
            select! {
                request = self.requests.recv(), if is_open => match request {
                    Some(request) => {
                        self.serve(request).await;
                        self.durability.used();
                    }
                    None => is_open = false,
                },
                () = self.durability.due() => self.durability.record_check(self.table.conn.is_durable().await),
                () = Clock::Boot.sleep_until(due.unwrap_or(Instant::from_nanos(0))), if due.is_some() => {
                    self.release_deferred().await;
                }
            }
        }
        self.table.conn.close().await;
    }

    /// Serves one request. The caller may have stopped waiting.
    async fn serve(&mut self, request: MutexRequest) {
        match request {
            MutexRequest::Acquire(want, reply) => {
                if !reply.is_closed() {
                    let _ = reply.send(self.acquire(&want).await);
                }
            }
            MutexRequest::Renew(wants, reply) => {
                if !reply.is_closed() {
                    let _ = reply.send(self.renew(&wants).await);
                }
            }
            MutexRequest::Release(name, claim, reply) => {
                let released = self.release(&name, claim).await;
                self.deferred.released(&name, claim);
                let _ = reply.send(released);
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

    async fn acquire(&mut self, want: &Want) -> Result<Acquired, Error> {
        let mut budget = self.retry_budget();
        self.deferred.requested(want.claim);
        loop {
            let sent = self.table.sending(want.lease);
            match self.scheme.acquire(&mut self.table, want, sent).await {
                Ok(acquired) => {
                    if acquired == Acquired::Busy {
                        // A try is over now. A waiter sends the claim again, which undoes this.
                        self.deferred.released(&want.name, want.claim);
                    }
                    return Ok(acquired);
                }
                Err(fault) => {
                    if fault.error.certainty() == Certainty::Unknown {
                        self.deferred.unanswered(want.claim, sent.over);
                    }
                    // Of several statements, an earlier one may have been applied.
                    let fault = fault.with_certainty(Certainty::Unknown);
                    budget.after(fault).await?;
                }
            }
        }
    }

    async fn renew(&mut self, wants: &[Want]) -> Result<Vec<bool>, Error> {
        let mut kept = Vec::with_capacity(wants.len());
        for want in wants {
            kept.push(retry!(self.retry_budget(), {
                let sent = self.table.sending(want.lease / 3);
                self.scheme.renew(&mut self.table, want, sent).await
            })?);
        }
        Ok(kept)
    }

    async fn release(&mut self, name: &LockName, claim: ClaimId) -> Result<Released, Error> {
        let mut budget = self.retry_budget();
        loop {
            match self.scheme.release(&mut self.table, name, claim).await {
                Ok(true) => return Ok(Released::Released),
                // An earlier attempt, whose answer was lost, has released it.
                Ok(false) if budget.in_doubt() => return Ok(Released::Released),
                Ok(false) => return Ok(Released::AlreadyLost),
                Err(fault) => budget.after(fault).await?,
            }
        }
    }

    /// Releases a claim once more, now that no request of it can arrive any more.
    async fn release_deferred(&mut self) {
        let Some((name, claim)) = self.deferred.take() else { return };
        match self.scheme.release(&mut self.table, &name, claim).await {
            Ok(true) => tracing::debug!(
                target: "dlock",
                name = %name,
                "late request of an earlier connection undone"
            ),
            Ok(false) => {}
            // The application has dropped the backend. The lease frees the lock.
            Err(_) if self.requests.is_closed() => {}
            Err(_) => self.deferred.again(name, claim, self.table.response_timeout),
        }
    }

    async fn inspect(&mut self, name: &LockName) -> Result<LockState, Error> {
        let seen = retry!(self.retry_budget(), self.table.read(name).await)?;
        let Some(seen) = seen.row.filter(|seen| seen.is_held && seen.left > 0) else {
            return Ok(LockState::default());
        };
        // The holder may be another program, with a name that is not a claim.
        let claim = seen.holder.parse().unwrap_or(ClaimId::from_bits(0));
        let remaining = Duration::from_micros(u64::try_from(seen.left).unwrap_or(0));
        let holder = ClaimState::new(claim, Mode::Exclusive, None, remaining);
        Ok(LockState::new(vec![holder], Vec::new(), None))
    }

    async fn list(&mut self, range: &Range) -> Result<Vec<Listed>, Error> {
        let statement = self.table.texts.range;
        retry!(self.retry_budget(), self.table.conn.range(statement, range, PAGE).await)
    }

    async fn examine(&mut self) -> Result<Vec<Finding>, Error> {
        retry!(self.retry_budget(), self.table.conn.examine().await)
    }

    fn retry_budget(&self) -> RetryBudget {
        RetryBudget::of_all_names(self.table.response_timeout)
    }
}
