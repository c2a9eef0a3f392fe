//! The pauses between retries of a request, and between polls.

use std::time::Duration;

use crate::sync::time;

/// The pauses between retries of a request, or between polls: each twice as long as the one before,
/// up to a limit, with jitter. By default, they grow from 5 ms to 500 ms.
#[derive(Debug)]
pub struct Pause {
    next: Duration,
    longest: Duration,
}

impl Pause {
    /// Begins with a pause of 5 ms.
    pub const fn new() -> Self {
        Self::between(Duration::from_millis(5), Duration::from_millis(500))
    }

    /// Begins with the `shortest` pause.
    pub const fn between(shortest: Duration, longest: Duration) -> Self {
        Self { next: shortest, longest }
    }

    /// Returns the pauses of a waiter that polls, in a store without a queue: from 2 ms, about a
    /// round trip, to 200 ms, or to a sixth of its lease if that is shorter. The jitter keeps the
    /// waiters of one lock from polling at the same time.
    pub fn of_polls(lease: Duration) -> Self {
        let shortest = Duration::from_millis(2);
        Self::between(shortest, Duration::from_millis(200).min(lease / 6).max(shortest))
    }

    /// Waits for the next pause, half of it or more.
    ///
    /// # Cancel safety
    /// The future can be dropped at any time; the next pause is then as long as this one.
    pub async fn wait(&mut self) {
        time::sleep(self.next.mul_f64(rand::random_range(0.5..1.0))).await;
        self.next = (self.next * 2).min(self.longest);
    }
}

impl Default for Pause {
    fn default() -> Self {
        Self::new()
    }
}
