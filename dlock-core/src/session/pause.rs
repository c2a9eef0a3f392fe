//! The pauses between retries of a request within a session.

use std::time::Duration;

use crate::sync::time;

/// The pauses between retries of a request: from 5 ms on, each twice as long as the one before, up to
/// 500 ms, with jitter.
#[derive(Debug)]
pub struct Pause(Duration);

impl Pause {
    const SHORTEST: Duration = Duration::from_millis(5);
    const LONGEST: Duration = Duration::from_millis(500);

    /// Begins with the shortest pause.
    pub const fn new() -> Self {
        Self(Self::SHORTEST)
    }

    /// Waits for the next pause, half of it or more.
    ///
    /// # Cancel safety
    /// The future can be dropped at any time; the next pause is then as long as this one.
    pub async fn wait(&mut self) {
        time::sleep(self.0.mul_f64(rand::random_range(0.5..1.0))).await;
        self.0 = (self.0 * 2).min(Self::LONGEST);
    }
}

impl Default for Pause {
    fn default() -> Self {
        Self::new()
    }
}
