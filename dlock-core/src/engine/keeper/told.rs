//! What the keeper makes of what a store tells unasked.

use std::{sync::Arc, time::Duration};

use super::{Books, Keeper, NEVER};
use crate::{
    DynBackend, Instant,
    engine::{events::Told, hold::Hold},
    guard::Ended,
    sync::atomic::Ordering::Relaxed,
};

impl Keeper {
    /// Learns what the store has told: ends the holds of claims that it has ended, and those whose
    /// leases its clock has ended; the others believe for less.
    pub(super) fn learn(&self, told: &Told, backend: &DynBackend) {
        let now = self.clock.now();
        let mut lost = Vec::new();
        {
            let mut books = self.books.lock();
            if !told.ended.is_empty() {
                let gone = |hold: &&Arc<Hold>| told.ended.contains(&hold.id);
                lost.extend(
                    books.all().filter(gone).map(|hold| (Arc::clone(hold), Ended::Revoked)),
                );
            }
            for step in &told.steps {
                let direction = if step.forward { "forward" } else { "back" };
                tracing::warn!(
                    target: "dlock",
                    backend = backend.store(),
                    direction,
                    by = ?step.by,
                    "store clock stepped"
                );
                if !step.forward {
                    continue;
                }
                books.steps.add(*step);
                let met: Vec<_> = books
                    .all()
                    .filter(|hold| hold.is_running() && hold.began() < step.seen)
                    .filter(|hold| backend.shard(hold.name()) == step.shard)
                    .cloned()
                    .collect();
                for hold in met {
                    if hold.shorten(step.by, now) {
                        lost.push((hold, Ended::ClockStep));
                    } else {
                        books.hurry(&hold, now);
                    }
                }
            }
            let next = books.all().map(|hold| hold.due()).min().unwrap_or(NEVER);
            self.next_look.fetch_min(next, Relaxed);
        }
        for (hold, how) in lost {
            hold.lose(how);
        }
    }

    /// A renewal that the keeper did not send has been answered.
    pub(crate) fn renewed(&self, hold: &Hold, sent: Instant, stored: Duration) {
        let books = self.books.lock();
        if books.cut(hold, sent).is_zero() {
            hold.renewed(sent, stored);
        }
    }
}

impl Books {
    /// By how much sooner a lease of this hold ends that began then, for the steps of the store's
    /// clock that it may have met.
    pub(super) fn cut(&self, hold: &Hold, began: Instant) -> Duration {
        self.steps.cut(began, || hold.engine.backend.shard(hold.name()))
    }

    /// Has a hold looked at by then.
    pub(super) fn hurry(&mut self, hold: &Hold, due: Instant) {
        if due.as_nanos() >= hold.due() {
            return;
        }
        if matches!(hold.place.get(), Some((_, true))) {
            self.move_to(hold, due);
        } else {
            hold.place.due.store(due.as_nanos(), Relaxed);
        }
    }
}
