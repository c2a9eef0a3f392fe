//! Holds that have no holder any more, and how the holds are that have one.

use std::sync::Arc;

use super::Keeper;
use crate::{
    engine::{hold::Hold, runtime_gone},
    sync::atomic::Ordering::Relaxed,
};

impl Keeper {
    /// Looks at a hold now, or as soon as the renewal is answered that is on its way.
    pub(in crate::engine) fn hurry(&self, hold: &Hold) {
        let now = self.clock.now();
        let mut books = self.books.lock();
        books.hurry(hold, now);
        self.next_look.fetch_min(now.as_nanos(), Relaxed);
        drop(books);
        self.wake.notify_one();
    }

    /// Nobody will look any more: the leases end those that are parted with.
    pub(super) fn forget_parting(&self) {
        let parting: Vec<Arc<Hold>> =
            self.books.lock().all().filter(|hold| hold.is_parting()).cloned().collect();
        for hold in parting {
            hold.parted();
        }
    }

    /// Nobody will look any more: tells the tasks of this process that wait for its holds.
    pub(super) fn fail_those_that_wait(&self) {
        let held: Vec<Arc<Hold>> = self.books.lock().all().cloned().collect();
        for cohort in held.iter().filter_map(|hold| hold.cohort()) {
            cohort.fail_all(runtime_gone);
        }
    }

    /// How many locks are held, and of how many the last renewal has failed.
    pub(crate) fn count(&self) -> (usize, usize) {
        let books = self.books.lock();
        let running = books.all().filter(|hold| hold.is_running());
        running.fold((0, 0), |(held, doubtful), hold| {
            (held + 1, doubtful + usize::from(hold.is_doubtful()))
        })
    }
}
