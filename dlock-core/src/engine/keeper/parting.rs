//! Holds that have no holder any more, and how the holds are that have one.

use std::sync::Arc;

use super::Keeper;
use crate::{engine::hold::Hold, sync::atomic::Ordering::Relaxed};

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

    /// How many locks are held, and of how many the last renewal has failed.
    pub(crate) fn count(&self) -> (usize, usize) {
        let books = self.books.lock();
        let running = books.all().filter(|hold| hold.is_running());
        running.fold((0, 0), |(held, doubtful), hold| {
            (held + 1, doubtful + usize::from(hold.is_doubtful()))
        })
    }
}
