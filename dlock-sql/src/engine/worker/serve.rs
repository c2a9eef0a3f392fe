//! How a batch is written: with one statement, or in parts if that fails, so that a bad row fails
//! only its own operations.
//!
//! A part is sent again until it succeeds, its retry budget is used up, or no retry helps. Each
//! sending may have been applied without an answer. So the retry budget of the batch records the
//! doubt, and every later answer takes it into account: a release that finds nothing then counts as
//! released.

use std::time::Duration;

use dlock_core::{Certainty, Clock, ConfigIssue, Error, ErrorKind, machine::Op};

use super::{
    super::{
        batch::refuse_long_queues,
        conn::Conn,
        fault::{Fault, Remedy},
        job::{Job, PendingOp},
        locked_rows,
        part::{self, Part, Unit},
        retry_budget::RetryBudget,
        waiters::Waiters,
    },
    Worker,
};

/// The largest number of times that the time for an answer doubles.
const SLOWEST: u32 = 8;

/// After this many unknown failures in a row, the cause is not a single row, since each failure
/// halves the part that is tried next.
const SICK: u32 = 12;

/// The failure of a part.
struct Failed {
    fault: Fault,
    /// The duration of the failed statement.
    took: Duration,
    /// The number of parts in a row with an unknown failure, this one included.
    unclear: u32,
}

impl<C: Conn> Worker<C> {
    /// Writes a batch, and answers all its jobs.
    pub(super) async fn serve(&mut self, mut batch: Vec<Job>) {
        let limit = part::limit(&batch).unwrap_or(Duration::MAX);
        self.conn.bound(limit.saturating_mul(1 << self.slow));
        refuse_long_queues(&mut self.conn, &self.cache, &mut batch).await;
        self.refuse_busy(&mut batch).await;
        if batch.is_empty() {
            return;
        }
        // The youngest job sets the limit, so an old one may get a few more retries.
        let now = Clock::Boot.now();
        let asked = batch.iter().map(|job| job.since).max().unwrap_or(now);
        let mut budget = RetryBudget::until(asked.saturating_add(self.settings.response_timeout));
        #[cfg(any(feature = "mysql", feature = "postgres"))]
        if batch.iter().all(|job| !job.together) {
            // The core abandons a renewal after twice this time, and then could not name the cause.
            budget = budget.returning_connects(asked, limit);
        }
        if batch.iter().any(|job| job.in_doubt) {
            budget.doubt();
        }
        let mut parts = vec![part::whole(&batch)];
        let mut unclear = 0;
        while let Some(part) = parts.pop() {
            let part = part::wanted(&batch, part);
            let part = self.defer_locked(&mut batch, part, &budget);
            if part.is_empty() {
                continue;
            }
            self.conn.bound(limit.saturating_mul(1 << self.slow));
            let sent = Clock::Boot.now();
            match self.write_part(&mut batch, &part, &mut budget).await {
                Ok(()) => {
                    unclear = 0;
                    part::finish(&mut batch, &part);
                    self.last_success = Clock::Boot.now();
                    if self.last_success.since(sent) < limit / 2 {
                        self.slow = 0;
                    }
                }
                Err(fault) => {
                    // After a late statement, the operations without a deadline have been applied
                    // and are answered now.
                    part::finish(&mut batch, &part);
                    if fault.error.certainty() == Certainty::Unknown {
                        // The server may only be slow, so the next answer may take longer.
                        self.slow = (self.slow + 1).min(SLOWEST);
                    }
                    let took = Clock::Boot.now().since(sent);
                    unclear = if fault.remedy == Remedy::Unclear { unclear + 1 } else { 0 };
                    let failed = Failed { fault, took, unclear };
                    self.handle_failure(&mut batch, part, failed, &mut budget, &mut parts).await;
                }
            }
        }
    }

    /// Handles a part that failed. Jobs that can't succeed get the error. The others return to the
    /// parts to write, without the rows that blocked the statement.
    async fn handle_failure(
        &mut self,
        batch: &mut [Job],
        part: Part,
        Failed { mut fault, took, unclear }: Failed,
        budget: &mut RetryBudget,
        parts: &mut Vec<Part>,
    ) {
        let part = part::wanted(batch, part);
        budget.certainty_of(&fault);
        let is_apart = fault.remedy == Remedy::Apart;
        let names = part::names(batch, &part);
        let all: Vec<_> = names.iter().collect();
        if is_apart && let Some(locked) = locked_rows::locked(&mut self.conn, &all).await {
            if !locked.is_empty() {
                self.locked_rows.lock(locked, &fault.error);
                return parts.push(part);
            }
            // The server answers, so the cause is one of these rows.
            if !budget.is_over() {
                if let Some(halves) = part::halves(batch, &part) {
                    return parts.extend(halves);
                }
                // Only rows that do not exist yet are left: another transaction is inserting one.
                // The row of a renewal exists, so a part with renewals is not treated like this.
                let is_refused = fault.error.certainty() == Certainty::NotApplied;
                if is_refused && part.iter().all(|unit| unit.of(batch).together) {
                    self.locked_rows.lock_unseen(names, &fault.error, took);
                    return parts.push(part);
                }
            }
        }
        // The cause may be the record of one name.
        let may_be_one = match fault.remedy {
            Remedy::Unclear => unclear < SICK,
            Remedy::None => is_of_rows(&fault.error),
            _ => false,
        };
        if may_be_one && let Some(halves) = part::halves(batch, &part) {
            return parts.extend(halves);
        }
        if fault.remedy == Remedy::Unclear {
            // The callers may retry. Other jobs must not wait for that here.
            fault.remedy = Remedy::None;
        }
        match budget.after(fault).await {
            Ok(()) => parts.push(part),
            Err(error) => self.fail(batch, &part, &error),
        }
    }

    fn fail(&self, batch: &mut [Job], part: &[Unit], error: &Error) {
        part::positions(part)
            .for_each(|(job, op)| remove_released(&self.shared.waiters, &batch[job].ops[op]));
        part::fail(batch, part, error);
    }

    /// Sets jobs aside that wait for a locked row. Renewals fail at once, since the core retries
    /// them.
    fn defer_locked(&mut self, batch: &mut [Job], part: Part, budget: &RetryBudget) -> Part {
        if self.locked_rows.due_in().is_none() {
            return part;
        }
        let (locked, rest) = part::touching(batch, part, |name| self.locked_rows.is_locked(name));
        let (waits, renewals): (Part, Part) =
            locked.into_iter().partition(|unit| unit.of(batch).together);
        for unit in renewals {
            let names = unit.ops_of(batch).iter().map(|pending| &pending.name);
            if let Some(error) = self.locked_rows.why(names) {
                part::fail(batch, &[unit], &error);
            }
        }
        let mut waits = part::take(batch, &waits);
        for job in &mut waits {
            job.in_doubt |= budget.in_doubt();
        }
        self.locked_rows.push(waits);
        rest
    }

    /// Checks whether jobs that were set aside can continue.
    pub(super) async fn check_locked_rows(&mut self) {
        self.locked_rows.check(&mut self.conn).await;
        let (now, timeout) = (Clock::Boot.now(), self.settings.response_timeout);
        let is_late = |job: &Job| now >= job.since.saturating_add(timeout);
        let waiters = &self.shared.waiters;
        let ready = self.locked_rows.ready(is_late, |mut job, error| {
            job.ops.iter().for_each(|pending| remove_released(waiters, pending));
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
        budget: &mut RetryBudget,
    ) -> Result<(), Fault> {
        let skips_sync = C::CAN_SKIP_SYNC && self.only_joins(batch, part, Clock::Boot.now());
        let is_grant_due = self.write(batch, part, skips_sync, budget.in_doubt()).await?;
        if skips_sync && is_grant_due {
            // The lock has become free meanwhile. The grant must survive a crash, so the same
            // operations are sent again, and this time they wait for the disk.
            budget.doubt();
            self.write(batch, part, false, true).await?;
        }
        Ok(())
    }
}

/// Removes a released claim from the waiters, whether the release was written or not.
fn remove_released(waiters: &Waiters, pending: &PendingOp) {
    if let Op::Release { claim, .. } = pending.op {
        waiters.remove(&pending.name, claim);
    }
}

/// Returns whether the cause may be a single record, or an object that was added to the table.
fn is_of_rows(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Protocol | ErrorKind::Config(ConfigIssue::ForeignStore))
}
