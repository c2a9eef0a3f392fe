//! The pauses of a waiter that polls, because its store sends no messages.

use std::time::Duration;

/// The shortest pause, about a round trip.
const SHORTEST: Duration = Duration::from_millis(2);
/// The longest pause, which is also the longest delay until a free lock is found.
const LONGEST: Duration = Duration::from_millis(200);

/// The pauses of one waiter. They grow, and have jitter, so that the waiters of one lock do not
/// poll at the same time.
#[derive(Debug, Default)]
pub(crate) struct PollPauses {
    polls: u32,
}

impl PollPauses {
    /// Waits before the next poll, at most a sixth of the lease.
    pub(crate) async fn pause(&mut self, lease: Duration) {
        let longest = LONGEST.min(lease / 6).max(SHORTEST);
        // The shift is bounded, so that it can't overflow in a long wait.
        let pause = (SHORTEST * (1 << self.polls.min(7))).min(longest);
        self.polls += 1;
        tokio::time::sleep(pause.mul_f64(rand::random_range(0.3..1.0))).await;
    }
}
