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
    ask::{MutexRequest, Want},
    backend::{Form, MutexStore},
    owed::Owed,
    table::PlainTable,
};
use crate::engine::{Ends, Kept, Listed, PAGE, Patience, Range, retry};

/// Starts a backend over plain rows. `kept` is whether the database keeps the writes that it has
/// answered.
pub(crate) fn start<C: PlainConn>(
    runtime: &Handle,
    store: Arc<str>,
    kept: Kept,
    conn: C,
    scheme: Scheme,
    texts: Statements,
    patience: Duration,
) -> MutexStore {
    let best = Guarantees::WEAKEST.with_exclusion(Exclusion::Restart).with_scope(Scope::Network);
    let seen = kept.clone();
    let promises = Box::new(move || scheme.guarantees(seen.promised(best)));
    let form = Form { name: "the plain form (dlock.plain)", together: 1, promises };
    MutexStore::start(runtime, store, form, patience, |asks| {
        let table = PlainTable { conn, texts, patience, clock: StoreClock::new() };
        PlainWorker { table, asks, scheme, owed: Owed::default(), kept }.run()
    })
}

#[derive(Debug)]
struct PlainWorker<C> {
    table: PlainTable<C>,
    asks: Ends<MutexRequest>,
    scheme: Scheme,
    owed: Owed,
    kept: Kept,
}

impl<C: PlainConn> PlainWorker<C> {
    /// Works until the last caller is dropped.
    async fn run(mut self) {
        if let Ok(name) = LockName::new("dlock") {
            // The answer shows the clock. If the read fails, the first statement is refused because
            // of its deadline, and its answer shows the clock.
            let _ = self.table.look(&name).await;
        }
        let mut is_asked = true;
        while is_asked || self.owed.due().is_some() {
            let due = self.owed.due();
            select! {
                ask = self.asks.recv(), if is_asked => match ask {
                    Some(ask) => {
                        self.serve(ask).await;
                        self.kept.used();
                    }
                    None => is_asked = false,
                },
                () = self.kept.is_due() => self.kept.looked(self.table.conn.keeps().await),
                () = Clock::Boot.sleep_until(due.unwrap_or(Instant::from_nanos(0))), if due.is_some() => {
                    self.pay().await;
                }
            }
        }
        self.table.conn.close().await;
    }

    /// Serves one request. The caller may have stopped waiting.
    async fn serve(&mut self, ask: MutexRequest) {
        match ask {
            MutexRequest::Take(want, reply) => {
                if !reply.is_closed() {
                    let _ = reply.send(self.take(&want).await);
                }
            }
            MutexRequest::Renew(wants, reply) => {
                if !reply.is_closed() {
                    let _ = reply.send(self.renew(&wants).await);
                }
            }
            MutexRequest::GiveBack(name, claim, reply) => {
                let released = self.give_back(&name, claim).await;
                self.owed.given_back(&name, claim);
                let _ = reply.send(released);
            }
            MutexRequest::Look(name, reply) => {
                let _ = reply.send(self.look(&name).await);
            }
            MutexRequest::Names(range, reply) => {
                let _ = reply.send(self.names(&range).await);
            }
            MutexRequest::Findings(reply) => {
                let _ = reply.send(self.findings().await);
            }
        }
    }

    async fn take(&mut self, want: &Want) -> Result<Acquired, Error> {
        let mut patience = self.patience();
        self.owed.asked(want.claim);
        loop {
            let sent = self.table.sending(want.lease);
            match self.scheme.take(&mut self.table, want, sent).await {
                Ok(acquired) => {
                    if acquired == Acquired::Busy {
                        // A try is over now. A waiter sends the claim again, which undoes this.
                        self.owed.given_back(&want.name, want.claim);
                    }
                    return Ok(acquired);
                }
                Err(fault) => {
                    if fault.error.certainty() == Certainty::Unknown {
                        self.owed.unanswered(want.claim, sent.over);
                    }
                    // Of several statements, an earlier one may have been applied.
                    let fault = fault.with_certainty(Certainty::Unknown);
                    patience.after(fault).await?;
                }
            }
        }
    }

    async fn renew(&mut self, wants: &[Want]) -> Result<Vec<bool>, Error> {
        let mut kept = Vec::with_capacity(wants.len());
        for want in wants {
            kept.push(retry!(self.patience(), {
                let sent = self.table.sending(want.lease / 3);
                self.scheme.renew(&mut self.table, want, sent).await
            })?);
        }
        Ok(kept)
    }

    async fn give_back(&mut self, name: &LockName, claim: ClaimId) -> Result<Released, Error> {
        let mut patience = self.patience();
        loop {
            match self.scheme.give_back(&mut self.table, name, claim).await {
                Ok(true) => return Ok(Released::Released),
                // An earlier attempt, whose answer was lost, has released it.
                Ok(false) if patience.in_doubt() => return Ok(Released::Released),
                Ok(false) => return Ok(Released::AlreadyLost),
                Err(fault) => patience.after(fault).await?,
            }
        }
    }

    /// Releases a claim once more, now that no request of it can arrive any more.
    async fn pay(&mut self) {
        let Some((name, claim)) = self.owed.take() else { return };
        match self.scheme.give_back(&mut self.table, &name, claim).await {
            Ok(true) => tracing::debug!(
                target: "dlock",
                name = %name,
                "late request of an earlier connection undone"
            ),
            Ok(false) => {}
            // The application has dropped the backend. The lease frees the lock.
            Err(_) if self.asks.is_closed() => {}
            Err(_) => self.owed.again(name, claim, self.table.patience),
        }
    }

    async fn look(&mut self, name: &LockName) -> Result<LockState, Error> {
        let seen = retry!(self.patience(), self.table.look(name).await)?;
        let Some(seen) = seen.row.filter(|seen| seen.is_held && seen.left > 0) else {
            return Ok(LockState::default());
        };
        // The holder may be another program, with a name that is not a claim.
        let claim = seen.holder.parse().unwrap_or(ClaimId::from_bits(0));
        let remaining = Duration::from_micros(u64::try_from(seen.left).unwrap_or(0));
        let holder = ClaimState::new(claim, Mode::Exclusive, None, remaining);
        Ok(LockState::new(vec![holder], Vec::new(), None))
    }

    async fn names(&mut self, range: &Range) -> Result<Vec<Listed>, Error> {
        let statement = self.table.texts.range;
        retry!(self.patience(), self.table.conn.range(statement, range, PAGE).await)
    }

    async fn findings(&mut self) -> Result<Vec<Finding>, Error> {
        retry!(self.patience(), self.table.conn.examine().await)
    }

    fn patience(&self) -> Patience {
        Patience::of_all_names(self.table.patience)
    }
}
