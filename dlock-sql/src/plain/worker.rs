//! The task that owns the connection: it does what callers ask for, one after another, whether they
//! still wait for the answer or not; renewals and releases first.

use std::time::Duration;

use dlock_core::{
    Acquired, Certainty, ClaimId, Clock, Error, Finding, Instant, LockName, Released, StoreClock,
};
use tokio::{select, sync::oneshot};

use super::{Looked, PlainConn, Scheme, Statements, owed::Owed, scheme::Want, table::Table};
use crate::engine::{Ends, Fault, Kept, Listed, Message, PAGE, Patience, Range};

/// What a caller asks for, and where the answer goes.
#[derive(Debug)]
pub(super) enum Ask {
    Take(Want, Reply<Acquired>),
    Renew(Want, Reply<bool>),
    GiveBack(LockName, ClaimId, Reply<Released>),
    Look(LockName, Reply<Looked>),
    Names(Range, Reply<Vec<Listed>>),
    Findings(Reply<Vec<Finding>>),
}

pub(super) type Reply<T> = oneshot::Sender<Result<T, Error>>;

impl Message for Ask {
    fn is_urgent(&self) -> bool {
        matches!(self, Self::Renew(..) | Self::GiveBack(..))
    }
}

#[derive(Debug)]
pub(super) struct Worker<C> {
    table: Table<C>,
    asks: Ends<Ask>,
    scheme: Scheme,
    owed: Owed,
    kept: Kept,
}

impl<C: PlainConn> Worker<C> {
    pub(super) fn new(
        conn: C,
        asks: Ends<Ask>,
        scheme: Scheme,
        texts: Statements,
        patience: Duration,
        kept: Kept,
    ) -> Self {
        let table = Table { conn, texts, patience, clock: StoreClock::new() };
        Self { table, asks, scheme, owed: Owed::default(), kept }
    }

    /// Works until the last caller has gone.
    pub(super) async fn run(mut self) {
        if let Ok(name) = LockName::new("dlock") {
            // It shows the clock. Should it fail, the first statement is too late and tells the time.
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
                () = self.kept.is_due() => self.look_at_settings().await,
                () = Clock::Boot.sleep_until(due.unwrap_or(Instant::from_nanos(0))), if due.is_some() => {
                    self.pay().await;
                }
            }
        }
        self.table.conn.close().await;
    }

    /// Who asked may have gone; that is its right.
    async fn serve(&mut self, ask: Ask) {
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
                let released = self.give_back(&name, claim).await;
                self.owed.given_back(&name, claim);
                let _ = reply.send(released);
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
    }

    async fn look_at_settings(&mut self) {
        match self.table.conn.keeps().await {
            Ok(keeps) => self.kept.saw(keeps),
            Err(fault) => {
                tracing::debug!(target: "dlock", error = %fault.error, "could not look at the settings");
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
                        // Whoever only tries takes it for settled.
                        self.owed.given_back(&want.name, want.claim);
                    }
                    return Ok(acquired);
                }
                Err(fault) => {
                    if fault.error.certainty() == Certainty::Unknown {
                        self.owed.unanswered(want.claim, sent.over);
                    }
                    // It is more than one statement, of which the first may have had its effect.
                    patience.after_unless_of_a_row(unsure(fault)).await?;
                }
            }
        }
    }

    async fn renew(&mut self, want: &Want) -> Result<bool, Error> {
        let mut patience = self.patience();
        loop {
            let sent = self.table.sending(want.lease / 3);
            match self.scheme.renew(&mut self.table, want, sent).await {
                Ok(kept) => return Ok(kept),
                Err(fault) => patience.after_unless_of_a_row(fault).await?,
            }
        }
    }

    async fn give_back(&mut self, name: &LockName, claim: ClaimId) -> Result<Released, Error> {
        let mut patience = self.patience();
        loop {
            match self.scheme.give_back(&mut self.table, name, claim).await {
                Ok(true) => return Ok(Released::Released),
                // The try whose answer was lost has released it.
                Ok(false) if patience.in_doubt() => return Ok(Released::Released),
                Ok(false) => return Ok(Released::AlreadyLost),
                Err(fault) => patience.after_unless_of_a_row(fault).await?,
            }
        }
    }

    /// Gives a claim back once more, of which nothing can arrive by now.
    async fn pay(&mut self) {
        let Some((name, claim)) = self.owed.take() else { return };
        match self.scheme.give_back(&mut self.table, &name, claim).await {
            Ok(true) => tracing::debug!(
                target: "dlock",
                name = %name,
                "a request of an earlier connection had arrived late, and was undone"
            ),
            Ok(false) => {}
            // Who has gone by now has nothing left to lose with it.
            Err(_) if self.asks.is_closed() => {}
            Err(_) => self.owed.again(name, claim, self.table.patience),
        }
    }

    async fn look(&mut self, name: &LockName) -> Result<Looked, Error> {
        let mut patience = self.patience();
        loop {
            match self.table.look(name).await {
                Ok(seen) => return Ok(seen),
                Err(fault) => patience.after_unless_of_a_row(fault).await?,
            }
        }
    }

    async fn names(&mut self, range: &Range) -> Result<Vec<Listed>, Error> {
        let mut patience = self.patience();
        loop {
            match self.table.conn.range(self.table.texts.range, range, PAGE).await {
                Ok(names) => return Ok(names),
                Err(fault) => patience.after_unless_of_a_row(fault).await?,
            }
        }
    }

    async fn findings(&mut self) -> Result<Vec<Finding>, Error> {
        let mut patience = self.patience();
        loop {
            match self.table.conn.examine().await {
                Ok(findings) => return Ok(findings),
                Err(fault) => patience.after_unless_of_a_row(fault).await?,
            }
        }
    }

    fn patience(&self) -> Patience {
        Patience::until(Clock::Boot.now().saturating_add(self.table.patience))
    }
}

fn unsure(fault: Fault) -> Fault {
    Fault { error: fault.error.with_certainty(Certainty::Unknown), ..fault }
}
