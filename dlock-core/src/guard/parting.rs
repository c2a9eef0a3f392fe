//! Leaving a lock to the store.

use super::{Guard, Kind, Lost};
use crate::Instant;

impl Guard {
    /// Leaves the lock to the store until then: see [`Hold::part`]. What it gives resolves once the
    /// store has been told, as `Released`, or once the lock is lost; the store is told also when it
    /// is dropped. Of one hold only; every other guard is released.
    ///
    /// [`Hold::part`]: crate::engine::hold::Hold::part
    pub(crate) fn part(self, until: Instant) -> Lost {
        let over = self.lost();
        if let Kind::Single(mut held) = self.0 {
            held.token = None;
            held.hold.part(until);
        }
        over
    }
}
