//! Tries for locks that are held. They write nothing: a read shows that the lock is busy.
//!
//! When a try is refused, it is over for its caller, and no release follows. If an earlier sending
//! of it arrives later, it could take the lock for a claim that has ended. So such a try is
//! written, and a claim that is refused in that state is released
//! ([`bar_refused`](Worker::bar_refused)).

use std::collections::HashSet;

use dlock_core::{
    Clock,
    machine::{Op, Outcome},
};

use super::{
    super::{
        conn::Conn,
        job::{Job, PendingOp, is_try, new_claim},
        outcome::{ClockSample, OpOutcome},
        part::{self, Unit},
        row::Wanted,
    },
    Worker,
};

impl<C: Conn> Worker<C> {
    /// Refuses tries for locks that were held when last seen and still are, according to a read.
    pub(super) async fn refuse_busy(&mut self, batch: &mut Vec<Job>) {
        if !batch.iter().any(|job| matches!(&*job.ops, [pending] if is_try(&pending.op))) {
            return;
        }
        let mut names = HashSet::new();
        let mut tries = Vec::new();
        for job in std::mem::take(batch) {
            // Not if an operation before it in the batch may free the lock.
            let may_be_busy = match &*job.ops {
                [pending] => {
                    is_try(&pending.op)
                        && self.cache.is_held(&pending.name)
                        && !names.contains(&pending.name)
                        && !self.is_in_doubt(&pending.op)
                }
                _ => false,
            };
            if may_be_busy {
                tries.push(job);
            } else {
                names.extend(job.ops.iter().map(|pending| pending.name.clone()));
                batch.push(job);
            }
        }
        if tries.is_empty() {
            return;
        }
        let wanted: Vec<Wanted> =
            tries.iter().map(|job| self.shared.snapshots.wanted(&job.ops[0].name)).collect();
        let sent = Clock::Boot.now();
        // If the read fails, the write decides.
        let Ok(seen) = self.conn.read(&wanted).await else { return batch.extend(tries) };
        for ((mut job, wanted), row) in tries.into_iter().zip(wanted).zip(seen.rows) {
            let pending = &mut job.ops[0];
            let mut machine = match row.map(|row| row?.replay_on(wanted.known.as_deref())) {
                Some(Ok(replayed)) => replayed.machine,
                _ => {
                    batch.push(job);
                    continue;
                }
            };
            let outcome = machine.apply(&pending.op, seen.now, &mut Vec::new());
            if matches!(outcome, Outcome::Busy | Outcome::Conflict { .. }) {
                let sample = ClockSample { sent, now: seen.now };
                let last = machine.last_token();
                pending.result = Some(Ok(OpOutcome { outcome, sample, last, in_doubt: false }));
                job.finish();
            } else {
                batch.push(job);
            }
        }
    }

    /// Returns whether an earlier sending of this claim was not answered.
    fn is_in_doubt(&self, op: &Op) -> bool {
        new_claim(op).is_some_and(|claim| self.shared.unanswered.barred_until(claim) > 0)
    }

    /// Releases claims that were refused, if an earlier sending of them may still arrive. The
    /// release goes into the next batch.
    pub(super) fn bar_refused(&mut self, batch: &[Job], part: &[Unit]) {
        for (job, op) in part::positions(part) {
            let pending = &batch[job].ops[op];
            let is_refused = pending.result.as_ref().is_some_and(|result| {
                result.as_ref().is_ok_and(|answer| {
                    use Outcome::{Busy, Conflict, Spent};
                    matches!(answer.outcome, Busy | Conflict { .. } | Spent)
                })
            });
            if let Some(claim) = new_claim(&pending.op).filter(|_| is_refused)
                && self.is_in_doubt(&pending.op)
            {
                let back = Op::Release { claim, used: 0, bar: 0 };
                self.waiting
                    .push_back(Job::new(vec![PendingOp::new(pending.name.clone(), back)], true).0);
            }
        }
    }
}
