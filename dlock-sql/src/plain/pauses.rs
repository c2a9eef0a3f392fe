//! The pauses of a waiter that polls, because the scheme has no notifications.

use std::time::Duration;

/// The shortest and the longest pause.
const SHORTEST: Duration = Duration::from_millis(2);
const LONGEST: Duration = Duration::from_millis(200);

/// The pauses of one waiter. They grow up to a sixth of the lease, and have jitter, so that the
/// waiters of one lock do not poll at the same time.
#[derive(Debug)]
pub(crate) struct Pauses {
    next: Duration,
    longest: Duration,
}

impl Pauses {
    pub(crate) fn new(lease: Duration) -> Self {
        Self { next: SHORTEST, longest: LONGEST.min(lease / 6).max(SHORTEST) }
    }

    pub(crate) fn next(&mut self) -> Duration {
        let pause = self.next;
        self.next = (pause * 2).min(self.longest);
        // Jitter: two waiters that start together must not poll together for ever.
        pause.mul_f64(rand::random_range(0.3..1.0))
    }
}
