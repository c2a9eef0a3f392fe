//! The books of the renewal task: which holds there are, and what is due when.
//!
//! They do nothing by themselves. `collect` says what to renew and whom to tell, `settle` and
//! `learn` say which holds have ended; the engine does it, without the lock on the books. So 100,000
//! held locks are one task, one timer and ordered memory.

use std::{collections::HashSet, sync::Arc, time::Duration};

use super::{
    Hold,
    order::Order,
    steps::{Step, Steps},
};
use crate::{ClaimId, Ended, Instant, LockName, Renewal, Renewed};

/// How many claims a batch has at the most.
const BATCH: usize = 500;
/// Claims that fall due this much later, but no more than a 16th of their lease, join a batch.
const LOOK_AHEAD: Duration = Duration::from_millis(500);
/// The longest sleep: timers stand still while the machine is suspended, leases do not.
pub(crate) const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// Which part of the store keeps a name.
pub(crate) type ShardOf<'a> = &'a dyn Fn(&LockName) -> u32;

#[derive(Default)]
pub(crate) struct Books {
    order: Order,
    steps: Steps,
    /// When the renewal task will look next; `None` while nothing is due, ever.
    look: Option<Instant>,
}

/// What becomes of a hold that is booked.
pub(crate) struct Added {
    /// A step of the store's clock has ended it on its way here.
    pub(crate) over: bool,
    /// It is due before the renewal task would have looked: it is to be woken.
    pub(crate) sooner: bool,
}

/// What one look finds to do.
#[derive(Default)]
pub(crate) struct Due {
    pub(crate) batches: Vec<Batch>,
    /// Their leases are over.
    pub(crate) late: Vec<Arc<Hold>>,
    /// Tasks of this process wait for them, perhaps their holders.
    pub(crate) own: Vec<Arc<Hold>>,
    /// When to look next, at the latest; `None` while nothing is due, ever.
    pub(crate) look: Option<Instant>,
}

/// Renewals that go to the store with one call.
pub(crate) struct Batch {
    /// Each with whether it is renewed for the last time, since it has no holder any more.
    holds: Vec<(Arc<Hold>, bool)>,
    pub(crate) renewals: Vec<Renewal>,
    shard: u32,
    /// When it was sent: set by the one who sends it.
    pub(crate) sent: Instant,
    /// When to give an answer up: there is time for another try then.
    pub(crate) limit: Duration,
}

/// What the answers to a batch come to.
#[derive(Default)]
pub(crate) struct Settled {
    pub(crate) kept: usize,
    pub(crate) lost: Vec<(Arc<Hold>, Ended)>,
    /// The store keeps them from now on, and nobody here does.
    pub(crate) parted: Vec<Arc<Hold>>,
    /// There was no answer for so many.
    pub(crate) failed: usize,
}

impl Books {
    /// Books a new hold.
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

    /// Takes a hold that has ended out of the books.
    pub(crate) fn take(&mut self, hold: &Hold) -> Option<Arc<Hold>> {
        self.order.remove(hold)
    }

    /// Has a hold looked at by then, if it is here. Whether that is sooner than the next look was.
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

    /// Takes together what is due, and sets the time of the next look.
    pub(crate) fn collect(&mut self, now: Instant, shard: ShardOf<'_>) -> Due {
        let mut due = Due::default();
        let ready = self.order.until(now.saturating_add(LOOK_AHEAD)).filter(|hold| {
            let early = hold.slot.due().since(now);
            early.is_zero() || (hold.may_go_early() && early <= hold.lease() / 16)
        });
        for hold in ready.cloned().collect::<Vec<_>>() {
            if !hold.is_running() {
                // Whoever ended it is about to take it out.
                let soon = LONGEST_SLEEP.min(hold.lease() / 12);
                self.move_to(&hold, now.saturating_add(soon));
                continue;
            }
            if now >= hold.valid_until() {
                due.late.push(hold);
                continue;
            }
            let renewal = if hold.slot.is_renewing() { None } else { hold.renewal(now) };
            self.move_to(&hold, hold.valid_until());
            if hold.is_waited_for_by_its_own(now) {
                due.own.push(Arc::clone(&hold));
            }
            if let Some((renewal, last)) = renewal {
                hold.slot.set_renewing(true);
                let shard = shard(hold.name());
                due.add(hold, last, renewal, shard);
            }
        }
        self.look = self.order.first();
        due.look = self.look;
        due
    }

    /// Books the answers to a batch; `None` when there is none.
    pub(crate) fn settle(
        &mut self,
        batch: &Batch,
        answers: Option<&[Renewed]>,
        now: Instant,
    ) -> Settled {
        let mut settled = Settled::default();
        for (i, ((hold, last), renewal)) in batch.holds.iter().zip(&batch.renewals).enumerate() {
            match answers.and_then(|answers| answers.get(i)) {
                // These stay in hand until they are over.
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
                    // What the clock did meanwhile is not known, so it is renewed once more.
                    let counts = self.renewed(hold, batch.sent, renewal.lease, batch.shard);
                    self.move_to(hold, if counts { hold.renewal_due() } else { now });
                }
                Some(Renewed::Unknown) | None => {
                    settled.failed += 1;
                    hold.doubt();
                    self.move_to(hold, hold.retry_due(now));
                }
            }
            hold.slot.set_renewing(false);
        }
        settled
    }

    /// A renewal that was sent then has been answered. Whether it counts: not if the store's clock
    /// was set forward on its way.
    pub(crate) fn renewed(&self, hold: &Hold, sent: Instant, stored: Duration, shard: u32) -> bool {
        let counts = self.steps.cut(sent, || shard).is_zero();
        if counts {
            hold.renewed(sent, stored);
        }
        counts
    }

    /// The store has ended these claims.
    pub(crate) fn of_claims(&self, claims: &HashSet<ClaimId>) -> Vec<Arc<Hold>> {
        self.all().filter(|hold| claims.contains(&hold.id)).cloned().collect()
    }

    /// The clock of a part of the store was set forward. Shortens the leases that it met, and has
    /// them renewed at once; those that are over by that.
    pub(crate) fn stepped(
        &mut self,
        step: Step,
        now: Instant,
        shard: ShardOf<'_>,
    ) -> Vec<Arc<Hold>> {
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

    /// Changes when a hold is due, if it still is in the books.
    fn move_to(&mut self, hold: &Hold, due: Instant) {
        if let Some(hold) = self.order.remove(hold) {
            self.order.insert(hold, due);
        }
    }
}

/// How a hold has ended whose renewal was answered so.
pub(crate) fn reason(gone: Renewed) -> Ended {
    if gone == Renewed::Forgotten { Ended::StoreReset } else { Ended::Revoked }
}

impl Due {
    fn add(&mut self, hold: Arc<Hold>, last: bool, renewal: Renewal, shard: u32) {
        // Leases of one length go together, so that a short one's limit is not another's.
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
