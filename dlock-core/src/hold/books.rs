//! The books of the renewal task: all holds of an engine, and when each is due.
//!
//! The books only decide. `collect` returns the renewals to send; `settle` and `stepped` return the
//! holds to end. The engine acts on that without the lock on the books, since the end of a hold
//! takes the lock again. So 100,000 held locks need one task, one timer and one ordered list.
//!
//! A hold is due for its renewal, for the retry of a renewal, or at its local deadline. While a
//! renewal is in flight, the hold is due at its deadline. So a hold whose renewal is never answered
//! is lost in time, without an answer from the store.

use std::{collections::HashSet, sync::Arc, time::Duration};

use super::{
    Hold,
    order::Order,
    steps::{Step, Steps},
};
use crate::{ClaimId, Ended, Instant, LockName, Renewal, Renewed};

/// The largest number of claims in a batch.
const BATCH: usize = 500;
/// The time by which claims may be due later and still join the batch, but at most a 16th of their
/// lease. That saves requests for locks that were acquired at different times.
const LOOK_AHEAD: Duration = Duration::from_millis(500);
/// The longest sleep: timers stop while the machine is suspended, leases do not.
pub(crate) const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// The part of the store that keeps a name.
pub(crate) type ShardOf<'a> = &'a dyn Fn(&LockName) -> u32;

#[derive(Default)]
pub(crate) struct Books {
    order: Order,
    steps: Steps,
    /// The time of the renewal task's next check. `None` while nothing will ever be due. A hold
    /// that is due earlier has to wake the task: the books return `sooner`, and the ledger wakes
    /// it.
    look: Option<Instant>,
}

/// The result of adding a hold.
pub(crate) struct Added {
    /// A step of the store's clock has ended its lease while the grant was in flight.
    pub(crate) over: bool,
    /// It is due before the next check of the renewal task, which has to be woken.
    pub(crate) sooner: bool,
}

/// The result of one check: the actions for the engine.
#[derive(Default)]
pub(crate) struct Due {
    pub(crate) batches: Vec<Batch>,
    /// Holds whose leases have expired.
    pub(crate) late: Vec<Arc<Hold>>,
    /// Holds for which tasks of this process, perhaps their own holders, have waited for a whole
    /// lease.
    pub(crate) own: Vec<Arc<Hold>>,
    /// The latest time of the next check; `None` while nothing will ever be due.
    pub(crate) look: Option<Instant>,
}

/// Renewals that go to the store with one call.
pub(crate) struct Batch {
    /// The holds. The flag marks the last renewal of a hold that has no holder any more.
    holds: Vec<(Arc<Hold>, bool)>,
    pub(crate) renewals: Vec<Renewal>,
    shard: u32,
    /// The time of sending. The renewal task sets it just before it sends.
    pub(crate) sent: Instant,
    /// The time limit for the answer. It leaves time for a retry before the leases end.
    pub(crate) limit: Duration,
}

/// The result of the answers to a batch.
#[derive(Default)]
pub(crate) struct Settled {
    pub(crate) kept: usize,
    pub(crate) lost: Vec<(Arc<Hold>, Ended)>,
    /// Holds that the store keeps from now on, without a holder: the engine forgets them.
    pub(crate) parted: Vec<Arc<Hold>>,
    /// The number of claims without an answer.
    pub(crate) failed: usize,
}

impl Books {
    /// Adds a new hold.
    pub(crate) fn add(
        &mut self,
        hold: &Arc<Hold>,
        shard: ShardOf<'_>,
        now: impl FnOnce() -> Instant,
    ) -> Added {
        let cut = self.steps.cut(hold.began(), || shard(hold.name()));
        let (mut due, mut over) = (hold.renewal_due(), false);
        if !cut.is_zero() {
            let now = now();
            over = hold.shorten(cut, now);
            due = due.min(now);
        }
        self.order.insert(Arc::clone(hold), due);
        Added { over, sooner: self.look_by(due) }
    }

    /// Removes a hold that has ended from the books.
    pub(crate) fn take(&mut self, hold: &Hold) -> Option<Arc<Hold>> {
        self.order.remove(hold)
    }

    /// Makes a hold due by `due`, if it is in the books. Returns true if that is before the next
    /// check.
    pub(crate) fn hurry(&mut self, hold: &Hold, due: Instant) -> bool {
        if due < hold.slot.due() {
            self.move_to(hold, due);
        }
        self.look_by(due)
    }

    fn look_by(&mut self, due: Instant) -> bool {
        let sooner = self.look.is_none_or(|look| due < look);
        if sooner {
            self.look = Some(due);
        }
        sooner
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<Hold>> {
        self.order.iter()
    }

    /// Collects the due holds, and sets the time of the next check.
    pub(crate) fn collect(&mut self, now: Instant, shard: ShardOf<'_>) -> Due {
        let mut due = Due::default();
        let ready = self.order.until(now.saturating_add(LOOK_AHEAD)).filter(|hold| {
            let early = hold.slot.due().since(now);
            early.is_zero() || (hold.may_go_early() && early <= hold.lease() / 16)
        });
        for hold in ready.cloned().collect::<Vec<_>>() {
            if !hold.is_running() {
                // The task that ended it is about to remove it. Until then the hold must not be due
                // repeatedly.
                let soon = LONGEST_SLEEP.min(hold.lease() / 12);
                self.move_to(&hold, now.saturating_add(soon));
                continue;
            }
            if now >= hold.valid_until() {
                due.late.push(hold);
                continue;
            }
            // One renewal at a time: the next one is due when this one is answered or has failed.
            let renewal = if hold.slot.is_renewing() { None } else { hold.renewal(now) };
            self.move_to(&hold, hold.valid_until());
            if hold.is_waited_for_by_its_own(now) {
                due.own.push(Arc::clone(&hold));
            }
            if let Some((renewal, last)) = renewal {
                hold.slot.set_renewing(true);
                hold.renewal_starts();
                let shard = shard(hold.name());
                due.add(hold, last, renewal, shard);
            }
        }
        self.look = self.order.first();
        due.look = self.look;
        due
    }

    /// Records the answers to a batch, or `None` if the whole request failed.
    pub(crate) fn settle(
        &mut self,
        batch: &Batch,
        answers: Option<&[Renewed]>,
        now: Instant,
    ) -> Settled {
        let mut settled = Settled::default();
        for (i, ((hold, last), renewal)) in batch.holds.iter().zip(&batch.renewals).enumerate() {
            let answer = answers.and_then(|answers| answers.get(i));
            // It has ended while the renewal was in flight. A success confirms hand-offs anyway.
            if !hold.is_running() && answer != Some(&Renewed::Kept) {
                continue;
            }
            match answer {
                // These two keep `renewing` set, so that no other renewal is sent before the
                // engine has ended them.
                Some(Renewed::Kept) if *last => {
                    settled.kept += 1;
                    settled.parted.push(Arc::clone(hold));
                    continue;
                }
                Some(gone @ (Renewed::Lost | Renewed::Forgotten)) => {
                    settled.lost.push((Arc::clone(hold), reason(*gone)));
                    continue;
                }
                Some(Renewed::Kept) => {
                    settled.kept += 1;
                    // If the clock was stepped meanwhile, the end of this lease is unknown: the old
                    // deadline stays, and the hold is renewed again at once.
                    let counts = self.renewed(hold, batch.sent, renewal.lease, batch.shard);
                    hold.renewal_succeeded();
                    self.move_to(hold, if counts { hold.renewal_due() } else { now });
                }
                Some(Renewed::Unknown) | None => {
                    // The request may have been applied. The deadline stays, which is correct in
                    // either case.
                    settled.failed += 1;
                    hold.doubt();
                    self.move_to(hold, hold.retry_due(now));
                }
            }
            hold.slot.set_renewing(false);
        }
        settled
    }

    /// Records the answer to a renewal that was sent at `sent`. Returns false if the answer does
    /// not count, because the store's clock was set forward while it was in flight.
    pub(crate) fn renewed(&self, hold: &Hold, sent: Instant, stored: Duration, shard: u32) -> bool {
        let counts = self.steps.cut(sent, || shard).is_zero();
        if counts {
            hold.renewed(sent, stored);
        }
        counts
    }

    /// Returns the holds of these claims, which the store has ended.
    pub(crate) fn of_claims(&self, claims: &HashSet<ClaimId>) -> Vec<Arc<Hold>> {
        self.all().filter(|hold| claims.contains(&hold.id)).cloned().collect()
    }

    /// Handles a step forward of the clock of a part of the store. Shortens the leases that began
    /// before, and makes them due at once. Returns the holds whose leases have therefore expired.
    pub(crate) fn stepped(
        &mut self,
        step: Step,
        now: Instant,
        shard: ShardOf<'_>,
    ) -> Vec<Arc<Hold>> {
        // Under the same lock as the answers: an answer is recorded either before the step, and is
        // shortened here, or after it, and finds the step.
        self.steps.add(step);
        let met = self.all().filter(|hold| {
            hold.is_running() && hold.began() < step.seen && shard(hold.name()) == step.shard
        });
        let mut over = Vec::new();
        for hold in met.cloned().collect::<Vec<_>>() {
            if hold.shorten(step.by, now) {
                over.push(hold);
            } else {
                self.hurry(&hold, now);
            }
        }
        over
    }

    /// Changes when a hold is due, if it is still in the books.
    fn move_to(&mut self, hold: &Hold, due: Instant) {
        if let Some(hold) = self.order.remove(hold) {
            self.order.insert(hold, due);
        }
    }
}

/// Returns how a hold ended, by the answer to its renewal.
pub(crate) fn reason(gone: Renewed) -> Ended {
    if gone == Renewed::Forgotten { Ended::StoreReset } else { Ended::Revoked }
}

impl Due {
    fn add(&mut self, hold: Arc<Hold>, last: bool, renewal: Renewal, shard: u32) {
        // Leases of equal length share a batch, since the time limit for the answer depends on it.
        let limit = hold.lease() / 3;
        let fits = |batch: &&mut Batch| {
            batch.shard == shard && batch.limit == limit && batch.holds.len() < BATCH
        };
        let batch = match self.batches.iter_mut().rev().find(fits) {
            Some(batch) => batch,
            None => {
                let sent = Instant::from_nanos(0);
                self.batches.push(Batch { holds: vec![], renewals: vec![], shard, sent, limit });
                let newest = self.batches.len() - 1;
                &mut self.batches[newest]
            }
        };
        batch.holds.push((hold, last));
        batch.renewals.push(renewal);
    }
}
