//! Asking again where nobody tells.

use std::time::Duration;

/// The shortest pause, about a round trip.
const SHORTEST: Duration = Duration::from_millis(2);
/// The longest, so that a free lock is not left alone for longer.
const LONGEST: Duration = Duration::from_millis(200);

/// The pauses of one that waits: they grow, and are random, so that many who wait for one lock do
/// not ask at one time.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    asked: u32,
}

impl Pace {
    /// Waits before the next question, no longer than a sixth of the lease.
    pub(crate) async fn pause(&mut self, lease: Duration) {
        let longest = LONGEST.min(lease / 6).max(SHORTEST);
        let pause = (SHORTEST * (1 << self.asked.min(7))).min(longest);
        self.asked += 1;
        tokio::time::sleep(pause.mul_f64(rand::random_range(0.3..1.0))).await;
    }
}
