//! How a batch is done: with one statement, or in parts when that fails, so that what is wrong with one
//! name is no matter of the others.

use std::time::Duration;

use dlock_core::{Certainty, Clock, ConfigIssue, Error, ErrorKind, machine::Op};

use super::{
    super::{
        aside,
        conn::Conn,
        crowd,
        fault::{Cure, Fault},
        job::{Job, PendingOp},
        part::{self, Part, Unit},
        patience::Patience,
        waiters::Waiters,
    },
    Worker,
};

/// How often the time for an answer doubles at the most.
const SLOWEST: u32 = 8;

/// After so many failures in a row that nobody knows, it is not one of the rows: each halves what the
/// next one is about.
const SICK: u32 = 12;

/// How a part failed.
struct Failed {
    fault: Fault,
    /// How long that took.
    took: Duration,
    /// How many parts in a row have failed in a way that nobody knows, this one included.
    unclear: u32,
}

impl<C: Conn> Worker<C> {
    /// Does all of it, or says why not.
    pub(super) async fn serve(&mut self, mut batch: Vec<Job>) {
        let limit = part::limit(&batch).unwrap_or(Duration::MAX);
        self.conn.bound(limit.saturating_mul(1 << self.slow));
        crowd::refuse(&mut self.conn, &self.cache, &mut batch).await;
        self.refuse_busy(&mut batch).await;
        if batch.is_empty() {
            return;
        }
        // The time of the last to come: who has waited for long gets a few tries more.
        let now = Clock::Boot.now();
        let asked = batch.iter().map(|job| job.asked).max().unwrap_or(now);
        let mut patience = Patience::until(asked.saturating_add(self.settings.patience));
        if batch.iter().any(|job| job.in_doubt) {
            patience.doubt();
        }
        let mut parts = vec![part::whole(&batch)];
        let mut unclear = 0;
        while let Some(part) = parts.pop() {
            let part = part::wanted(&batch, part);
            let part = self.set_aside(&mut batch, part, &patience);
            if part.is_empty() {
                continue;
            }
            self.conn.bound(limit.saturating_mul(1 << self.slow));
            let sent = Clock::Boot.now();
            match self.write_part(&mut batch, &part, &mut patience).await {
                Ok(()) => {
                    unclear = 0;
                    part::finish(&mut batch, &part);
                    self.heard = Clock::Boot.now();
                    if self.heard.since(sent) < limit / 2 {
                        self.slow = 0;
                    }
                }
                Err(fault) => {
                    // What came too late leaves out what had no deadline.
                    part::finish(&mut batch, &part);
                    if fault.error.certainty() == Certainty::Unknown {
                        // Perhaps it is only slow: the next one may take longer.
                        self.slow = (self.slow + 1).min(SLOWEST);
                    }
                    let took = Clock::Boot.now().since(sent);
                    unclear = if fault.cure == Cure::Unclear { unclear + 1 } else { 0 };
                    let failed = Failed { fault, took, unclear };
                    self.again(&mut batch, part, failed, &mut patience, &mut parts).await;
                }
            }
        }
    }

    /// Sees to the rest of a part that failed: what can't be done is told so, and what can be is put
    /// among the parts to do, without what stood in its way.
    async fn again(
        &mut self,
        batch: &mut [Job],
        part: Part,
        Failed { mut fault, took, unclear }: Failed,
        patience: &mut Patience,
        parts: &mut Vec<Part>,
    ) {
        let part = part::wanted(batch, part);
        patience.certainty_of(&fault);
        let is_apart = fault.cure == Cure::Apart;
        let names = part::names(batch, &part);
        let all: Vec<_> = names.iter().collect();
        if is_apart && let Some(locked) = aside::locked(&mut self.conn, &all).await {
            if !locked.is_empty() {
                self.aside.lock(locked, &fault.error);
                return parts.push(part);
            }
            // The server answers, so it is one of these.
            if !patience.is_over() {
                if let Some(halves) = part::halves(batch, &part) {
                    return parts.extend(halves);
                }
                // The row of what is renewed can be seen.
                let is_told = fault.error.certainty() == Certainty::NotApplied;
                if is_told && part.iter().all(|unit| unit.of(batch).together) {
                    self.aside.lock_unseen(names, &fault.error, took);
                    return parts.push(part);
                }
            }
        }
        // Perhaps it is the record of one of them.
        let may_be_one = match fault.cure {
            Cure::Unclear => unclear < SICK,
            Cure::None => is_of_rows(&fault.error),
            _ => false,
        };
        if may_be_one && let Some(halves) = part::halves(batch, &part) {
            return parts.extend(halves);
        }
        if fault.cure == Cure::Unclear {
            // Whoever asked may ask again, and the others do not have to wait for that here.
            fault.cure = Cure::None;
        }
        match patience.after(fault).await {
            Ok(()) => parts.push(part),
            Err(error) => self.fail(batch, &part, &error),
        }
    }

    fn fail(&self, batch: &mut [Job], part: &[Unit], error: &Error) {
        part::places(part)
            .for_each(|(job, ask)| withdraw(&self.shared.waiters, &batch[job].asks[ask]));
        part::fail(batch, part, error);
    }

    /// Sets those aside that wait for a row which is locked. Renewals are told so, since those who
    /// sent them try again by themselves.
    fn set_aside(&mut self, batch: &mut [Job], part: Part, patience: &Patience) -> Part {
        if self.aside.due_in().is_none() {
            return part;
        }
        let (locked, rest) = part::touching(batch, part, |name| self.aside.is_locked(name));
        let (waits, told): (Part, Part) =
            locked.into_iter().partition(|unit| unit.of(batch).together);
        for unit in told {
            let names = unit.asks_of(batch).iter().map(|ask| &ask.name);
            if let Some(error) = self.aside.why(names) {
                part::fail(batch, &[unit], &error);
            }
        }
        let mut waits = part::take(batch, &waits);
        for job in &mut waits {
            job.in_doubt |= patience.in_doubt();
        }
        self.aside.push(waits);
        rest
    }

    /// Looks after the jobs that were set aside.
    pub(super) async fn look_aside(&mut self) {
        self.aside.look(&mut self.conn).await;
        let (now, patience) = (Clock::Boot.now(), self.settings.patience);
        let is_late = |job: &Job| now >= job.asked.saturating_add(patience);
        let waiters = &self.shared.waiters;
        let ready = self.aside.ready(is_late, |mut job, error| {
            job.asks.iter().for_each(|ask| withdraw(waiters, ask));
            job.fail(error);
        });
        for job in ready.into_iter().rev() {
            self.waiting.push_front(job);
        }
    }

    /// Writes a part, once.
    async fn write_part(
        &mut self,
        batch: &mut [Job],
        part: &[Unit],
        patience: &mut Patience,
    ) -> Result<(), Fault> {
        let hurries = C::CAN_HURRY && self.only_joins(batch, part, Clock::Boot.now());
        let owes = self.write(batch, part, hurries, patience.in_doubt()).await?;
        if hurries && owes {
            // Nobody is in the way any more. Whoever is let in now must not get lost.
            patience.doubt();
            self.write(batch, part, false, true).await?;
        }
        Ok(())
    }
}

/// Whoever gives a claim up waits for it no more, written or not.
fn withdraw(waiters: &Waiters, ask: &PendingOp) {
    if let Op::Release { claim, .. } = ask.op {
        waiters.withdraw(&ask.name, claim);
    }
}

/// Whether one record, or what somebody has added to the table, may be all that is wrong.
fn is_of_rows(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Protocol | ErrorKind::Config(ConfigIssue::ForeignStore))
}
