//! The pauses between retries.

use std::time::Duration;

use crate::sync::time;

/// The pauses between retries of a request, or between polls: each twice as long as the one before, up
/// to a limit. All have jitter, so that clients that fail together do not retry together.
///
/// A limit that is the shortest pause makes all pauses equally long, but for the jitter.
#[derive(Clone, Copy, Debug)]
pub struct Backoff {
    next: Duration,
    longest: Duration,
}

impl Backoff {
    /// Begins with a pause of 5 ms. The longest is 500 ms.
    pub const fn new() -> Self {
        Self::between(Duration::from_millis(5), Duration::from_millis(500))
    }

    /// Begins with the `shortest` pause.
    pub const fn between(shortest: Duration, longest: Duration) -> Self {
        Self { next: shortest, longest }
    }

    /// Returns the pauses of a waiter that polls, in a store without a queue: from 2 ms, about a
    /// round trip, to 200 ms, or to a sixth of its lease if that is shorter.
    pub fn of_polls(lease: Duration) -> Self {
        let shortest = Duration::from_millis(2);
        Self::between(shortest, Duration::from_millis(200).min(lease / 6).max(shortest))
    }

    /// Returns the next pause, half of it or more.
    pub fn pause(&mut self) -> Duration {
        let pause = self.next;
        self.next = (pause * 2).min(self.longest);
        pause.mul_f64(rand::random_range(0.5..1.0))
    }

    /// Waits for the next pause.
    ///
    /// # Cancel safety
    /// The future can be dropped at any time.
    pub async fn wait(&mut self) {
        time::sleep(self.pause()).await;
    }
}

impl Default for Backoff {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest_and_have_jitter() {
        let mut backoff = Backoff::between(Duration::from_millis(10), Duration::from_millis(35));
        for longest in [10, 20, 35, 35].map(Duration::from_millis) {
            let pause = backoff.pause();
            assert!(pause >= longest / 2 && pause < longest, "{pause:?}");
        }
        let pauses: Vec<_> = (0..20).map(|_| backoff.pause()).collect();
        assert!(pauses.iter().any(|pause| *pause != pauses[0]), "{pauses:?}");
    }
}
