//! The task that owns the connection: it does what callers ask for, one after another, whether they
//! still wait for the answer or not.

use std::time::Duration;

use dlock_core::{
    Acquired, Certainty, ClaimId, Clock, Error, Finding, Instant, LockName, Released,
};
use tokio::{
    select,
    sync::{mpsc, oneshot},
};

use super::{PlainConn, Scheme, Seen, Statements, scheme::Want};
use crate::engine::{Fault, Kept, Listed, PAGE, Patience, Range};

/// What a caller asks for, and where the answer goes.
#[derive(Debug)]
pub(super) enum Ask {
    Take(Want, Reply<Acquired>),
    Renew(Want, Reply<bool>),
    GiveBack(LockName, ClaimId, Reply<Released>),
    Look(LockName, Reply<Option<Seen>>),
    Names(Range, Reply<Vec<Listed>>),
    Findings(Reply<Vec<Finding>>),
}

pub(super) type Reply<T> = oneshot::Sender<Result<T, Error>>;

#[derive(Debug)]
pub(super) struct Worker<C> {
    pub(super) conn: C,
    pub(super) asks: mpsc::Receiver<Ask>,
    pub(super) scheme: Scheme,
    pub(super) texts: Statements,
    pub(super) patience: Duration,
    pub(super) kept: Kept,
}

impl<C: PlainConn> Worker<C> {
    /// Works until the last caller has gone.
    pub(super) async fn run(mut self) {
        loop {
            let ask = select! {
                ask = self.asks.recv() => ask,
                () = self.kept.is_due() => {
                    self.look_at_settings().await;
                    continue;
                }
            };
            let Some(ask) = ask else { break };
            // Who asked may have gone; that is its right.
            match ask {
                Ask::Take(want, reply) => {
                    if !reply.is_closed() {
                        let _ = reply.send(self.take(&want).await);
                    }
                }
                Ask::Renew(want, reply) => {
                    if !reply.is_closed() {
                        let _ = reply.send(self.renew(&want).await);
                    }
                }
                Ask::GiveBack(name, claim, reply) => {
                    let _ = reply.send(self.give_back(&name, claim).await);
                }
                Ask::Look(name, reply) => {
                    let _ = reply.send(self.look(&name).await);
                }
                Ask::Names(range, reply) => {
                    let _ = reply.send(self.names(&range).await);
                }
                Ask::Findings(reply) => {
                    let _ = reply.send(self.findings().await);
                }
            }
            self.kept.used();
        }
        self.conn.close().await;
    }

    async fn look_at_settings(&mut self) {
        match self.conn.keeps().await {
            Ok(keeps) => self.kept.saw(keeps),
            Err(fault) => {
                tracing::debug!(target: "dlock", error = %fault.error, "could not look at the settings");
            }
        }
    }

    async fn take(&mut self, want: &Want) -> Result<Acquired, Error> {
        let mut patience = self.patience();
        loop {
            let sent: Instant = Clock::Boot.now();
            match self.scheme.take(&mut self.conn, &self.texts, want, sent).await {
                Ok(acquired) => return Ok(acquired),
                // It is more than one statement, of which the first may have had its effect.
                Err(fault) => patience.after_unless_of_a_row(unsure(fault)).await?,
            }
        }
    }

    async fn renew(&mut self, want: &Want) -> Result<bool, Error> {
        let mut patience = self.patience();
        loop {
            match self.scheme.renew(&mut self.conn, &self.texts, want).await {
                Ok(kept) => return Ok(kept),
                Err(fault) => patience.after_unless_of_a_row(fault).await?,
            }
        }
    }

    async fn give_back(&mut self, name: &LockName, claim: ClaimId) -> Result<Released, Error> {
        let mut patience = self.patience();
        loop {
            match self.scheme.give_back(&mut self.conn, &self.texts, name, claim).await {
                Ok(true) => return Ok(Released::Released),
                // The try whose answer was lost has released it.
                Ok(false) if patience.in_doubt() => return Ok(Released::Released),
                Ok(false) => return Ok(Released::AlreadyLost),
                Err(fault) => patience.after_unless_of_a_row(fault).await?,
            }
        }
    }

    async fn look(&mut self, name: &LockName) -> Result<Option<Seen>, Error> {
        let mut patience = self.patience();
        loop {
            match self.conn.look(self.texts.look, name).await {
                Ok(seen) => return Ok(seen),
                Err(fault) => patience.after_unless_of_a_row(fault).await?,
            }
        }
    }

    async fn names(&mut self, range: &Range) -> Result<Vec<Listed>, Error> {
        let mut patience = self.patience();
        loop {
            match self.conn.range(self.texts.range, range, PAGE).await {
                Ok(names) => return Ok(names),
                Err(fault) => patience.after_unless_of_a_row(fault).await?,
            }
        }
    }

    async fn findings(&mut self) -> Result<Vec<Finding>, Error> {
        let mut patience = self.patience();
        loop {
            match self.conn.examine().await {
                Ok(findings) => return Ok(findings),
                Err(fault) => patience.after_unless_of_a_row(fault).await?,
            }
        }
    }

    fn patience(&self) -> Patience {
        Patience::until(Clock::Boot.now().saturating_add(self.patience))
    }
}

fn unsure(fault: Fault) -> Fault {
    Fault { error: fault.error.with_certainty(Certainty::Unknown), ..fault }
}
