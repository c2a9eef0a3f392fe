//! The queue of the renewal task: all holds of an engine, and when each is due.
//!
//! The queue only decides. `collect` returns the renewals to send; `settle` and `stepped`
//! return the holds to end. The engine acts on that without the lock on the queue, since
//! the end of a hold takes the lock again. So 100,000 held locks need one task, one timer and one
//! ordered list.
//!
//! A hold is due for its renewal, for the retry of a renewal, or at its local deadline. While a
//! renewal is in flight, the hold is due at its deadline. So a hold whose renewal is never answered
//! is lost in time, without an answer from the store.

use std::{
    collections::{BTreeMap, HashSet, btree_map::Entry},
    sync::Arc,
    time::Duration,
};

use super::Hold;
use crate::{ClaimId, Ended, Instant, LockName, Renewal, Renewed};

/// The largest number of claims in a batch.
const BATCH: usize = 500;
/// The time by which claims may be due later and still join the batch, but at most a 16th of their
/// lease. That saves requests for locks that were acquired at different times.
const BATCH_WINDOW: Duration = Duration::from_millis(500);
/// The longest sleep: timers stop while the machine is suspended, leases do not.
pub(crate) const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// The part of the store that keeps a name.
pub(crate) type ShardOf<'a> = &'a dyn Fn(&LockName) -> u32;

#[derive(Default)]
pub(crate) struct RenewalQueue {
    order: Order,
    steps: Steps,
    /// The time of the renewal task's next check. `None` while nothing will ever be due. A hold
    /// that is due earlier has to wake the task: `add` returns `sooner`, and the shared queue wakes
    /// it.
    next_check: Option<Instant>,
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
    pub(crate) next_check: Option<Instant>,
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
    pub(crate) renewed: usize,
    pub(crate) lost: Vec<(Arc<Hold>, Ended)>,
    /// Holds that the store keeps from now on, without a holder: the engine forgets them.
    pub(crate) parted: Vec<Arc<Hold>>,
    /// The number of claims without an answer.
    pub(crate) failed: usize,
}

impl RenewalQueue {
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
        Added { over, sooner: self.check_by(due) }
    }

    /// Removes a hold that has ended from the renewal queue.
    pub(crate) fn take(&mut self, hold: &Hold) -> Option<Arc<Hold>> {
        self.order.remove(hold)
    }

    /// Makes a hold due by `due`, if it is in the renewal queue. Returns true if that is before the
    /// next check.
    pub(crate) fn expedite(&mut self, hold: &Hold, due: Instant) -> bool {
        if due < hold.slot.due() {
            self.move_to(hold, due);
        }
        self.check_by(due)
    }

    fn check_by(&mut self, due: Instant) -> bool {
        let sooner = self.next_check.is_none_or(|next| due < next);
        if sooner {
            self.next_check = Some(due);
        }
        sooner
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<Hold>> {
        self.order.iter()
    }

    /// Collects the due holds, and sets the time of the next check.
    pub(crate) fn collect(&mut self, now: Instant, shard: ShardOf<'_>) -> Due {
        let mut due = Due::default();
        let ready = self.order.until(now.saturating_add(BATCH_WINDOW)).filter(|hold| {
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
        self.next_check = self.order.first();
        due.next_check = self.next_check;
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
                    settled.renewed += 1;
                    settled.parted.push(Arc::clone(hold));
                    continue;
                }
                Some(gone @ (Renewed::Lost | Renewed::Forgotten)) => {
                    settled.lost.push((Arc::clone(hold), reason(*gone)));
                    continue;
                }
                Some(Renewed::Kept) => {
                    settled.renewed += 1;
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
                self.expedite(&hold, now);
            }
        }
        over
    }

    /// Changes when a hold is due, if it is still in the renewal queue.
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
        batch.renewals.push(renewal.with_answer_within(limit));
    }
}

/// The binary logarithm of a tick in nanoseconds: 2^26 ns, or 67 ms.
const TICK: u32 = 26;

/// The holds in the order in which they are due.
///
/// Each tick has an unordered list; the holds have no map entries. So a hold takes only 8 bytes,
/// and a move needs no search. Each renewal makes two moves. All of this, with the slots of the
/// holds, is used only under the lock of the renewal queue.
///
/// Invariant: a hold in a list has its index there in `slot.at`, and its list is that of
/// `slot.due`.
#[derive(Default)]
struct Order {
    lists: BTreeMap<u64, List>,
    /// The memory of a small list that was removed, for the next list. An uncontended lock is often
    /// alone in its list; without this it would allocate with each renewal.
    spare: Vec<Arc<Hold>>,
}

/// The largest capacity of a list whose memory is kept.
const SMALL: usize = 16;

/// The holds of one tick, at least one.
struct List {
    holds: Vec<Arc<Hold>>,
    /// The time at which the first hold is due. `None` after that hold was removed: then `first`
    /// computes it again.
    first: Option<Instant>,
}

const fn tick(due: Instant) -> u64 {
    due.as_nanos() >> TICK
}

impl Order {
    fn insert(&mut self, hold: Arc<Hold>, due: Instant) {
        hold.slot.set_due(due);
        let spare = &mut self.spare;
        let list = self
            .lists
            .entry(tick(due))
            .or_insert_with(|| List { holds: std::mem::take(spare), first: None });
        if list.holds.is_empty() || list.first.is_some_and(|first| due < first) {
            list.first = Some(due);
        }
        hold.slot.set_at(Some(list.holds.len()));
        list.holds.push(hold);
    }

    /// Removes a hold, if it is in a list.
    fn remove(&mut self, hold: &Hold) -> Option<Arc<Hold>> {
        let (at, due) = (hold.slot.at()?, hold.slot.due());
        let Entry::Occupied(mut entry) = self.lists.entry(tick(due)) else { return None };
        let list = entry.get_mut();
        // The last hold fills the gap, so that no other index changes.
        let last = list.holds.pop()?;
        let taken = match list.holds.get_mut(at) {
            Some(place) => {
                last.slot.set_at(Some(at));
                std::mem::replace(place, last)
            }
            None => last,
        };
        taken.slot.set_at(None);
        if list.first == Some(due) {
            list.first = None;
        }
        if list.holds.is_empty() {
            let holds = entry.remove().holds;
            if holds.capacity() <= SMALL {
                self.spare = holds;
            }
        }
        Some(taken)
    }

    /// Returns the time at which the first hold is due.
    fn first(&mut self) -> Option<Instant> {
        let mut first = self.lists.first_entry()?;
        let list = first.get_mut();
        if list.first.is_none() {
            list.first = list.holds.iter().map(|hold| hold.slot.due()).min();
        }
        list.first
    }

    /// Returns the holds that are due by then.
    fn until(&self, then: Instant) -> impl Iterator<Item = &Arc<Hold>> {
        let lists = self.lists.range(..=tick(then)).flat_map(|(_, list)| &list.holds);
        lists.filter(move |hold| hold.slot.due() <= then)
    }

    fn iter(&self) -> impl Iterator<Item = &Arc<Hold>> {
        self.lists.values().flat_map(|list| &list.holds)
    }
}

/// A step of the clock of a part of the store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    pub(crate) shard: u32,
    pub(crate) forward: bool,
    pub(crate) by: Duration,
    pub(crate) seen: Instant,
}

/// Steps of the store's clock, kept for leases whose answers are still in flight.
///
/// A grant or a renewal may be answered before a step and processed after it. The lease that it
/// states is then too long. The queue therefore compares each answer with the last steps,
/// under its lock. `dlock-core/tests/core/events.rs` tests this.
#[derive(Default)]
struct Steps(Vec<Step>);

impl Steps {
    /// The largest number of recorded steps. Older steps are forgotten.
    const MOST: usize = 64;

    fn add(&mut self, step: Step) {
        if self.0.len() >= Self::MOST {
            self.0.remove(0);
        }
        self.0.push(step);
    }

    /// Returns the time by which the steps shorten a lease of this shard that began at `began`.
    fn cut(&self, began: Instant, shard: impl Fn() -> u32) -> Duration {
        // A request that was sent after the step was seen used the new clock, so it is not
        // shortened.
        let met = self.0.iter().filter(|step| began < step.seen && step.shard == shard());
        met.fold(Duration::ZERO, |all, step| all.saturating_add(step.by))
    }
}
