//! Asking again where nobody tells.

use std::time::Duration;

/// The shortest and the longest pause.
const SHORTEST: Duration = Duration::from_millis(2);
const LONGEST: Duration = Duration::from_millis(200);

/// The pauses of one that waits. They grow, to no more than a sixth of the lease, and are random, so
/// that many who wait for one lock do not ask at one time.
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
        pause.mul_f64(rand::random_range(0.3..1.0))
    }
}
