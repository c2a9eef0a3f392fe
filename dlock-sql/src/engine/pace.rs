//! The pauses between polls of a lock with waiters in this process.
//!
//! A late poll delays a hand-off, and an early poll costs the database a read. The pause follows
//! the speed of the queue: it grows with the time since the queue last moved, and with the number
//! of claims ahead. While notifications arrive, polls only find lost ones, so they are rare.

use std::time::Duration;

use dlock_core::Instant;

pub(crate) const SHORTEST: Duration = Duration::from_micros(500);
pub(crate) const LONGEST: Duration = Duration::from_millis(20);
/// The longest pause for a claim far behind in a queue with a known pace.
const FARTHEST: Duration = Duration::from_millis(100);
/// The pause is this fraction of the time since the queue moved. So a hand-off is noticed late by
/// at most this fraction of the wait.
const PART: u32 = 16;

/// The pace of polls while notifications arrive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rarely {
    shortest: Duration,
    longest: Duration,
    /// A notification that has not arrived after this time is lost.
    late: Duration,
}

impl Rarely {
    /// For notifications from a server, where a poll is a request.
    pub(crate) const SERVER: Self = Self {
        shortest: Duration::from_millis(200),
        longest: Duration::from_secs(1),
        late: Duration::from_secs(1),
    };

    /// For notifications from another process, which may be unable to send any, and where a poll is
    /// cheap.
    #[cfg(feature = "sqlite")]
    pub(crate) const FILE: Self = Self {
        shortest: Duration::from_millis(20),
        longest: Duration::from_millis(100),
        late: Duration::from_millis(10),
    };

    /// Never within a test.
    #[cfg(all(test, feature = "sqlite"))]
    pub(crate) const NEVER: Self = Self {
        shortest: Duration::from_secs(3600),
        longest: Duration::from_secs(3600),
        late: Duration::from_millis(10),
    };

    /// Returns the time from which a notification counts as lost, if its grant began at `began`.
    pub(crate) fn lost(self, began: Instant) -> Instant {
        began.saturating_add(self.late)
    }
}

impl Default for Rarely {
    fn default() -> Self {
        Self::SERVER
    }
}

/// The movement of one queue, seen from the first waiter of this process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// The number of claims ahead, holders included.
    ahead: usize,
    /// The shortest recent time of one hand-off.
    each: Duration,
    /// When the queue last moved.
    moved: Instant,
}

impl Pace {
    /// Creates a queue with this last known time of one hand-off. Zero if none is known.
    pub(crate) const fn new(now: Instant, each: Duration) -> Self {
        Self { ahead: 1, each, moved: now }
    }

    /// Returns the time of one hand-off.
    pub(crate) const fn each(&self) -> Duration {
        self.each
    }

    /// Records that `ahead` claims are before the first waiter of this process.
    pub(crate) fn observe(&mut self, ahead: usize, now: Instant) {
        if let Some(left) = self.ahead.checked_sub(ahead).filter(|left| *left > 0) {
            let took = now.since(self.moved) / u32::try_from(left).unwrap_or(u32::MAX);
            // The shortest recent time, not the average. A claim that notices its turn late slows
            // the queue down. With an average, others would take that for the pace, and be later
            // still.
            self.each = match self.each {
                Duration::ZERO => took,
                known if took < known => took,
                known => (known * 15 + took) / 16,
            };
        }
        if ahead != self.ahead {
            self.moved = now;
        }
        self.ahead = ahead;
    }

    /// Returns the pause before the next poll while notifications arrive.
    pub(crate) fn rare_delay(&self, now: Instant, rarely: Rarely) -> Duration {
        (now.since(self.moved) / PART).clamp(rarely.shortest, rarely.longest)
    }

    /// Returns the pause before the next poll. It is short after a change, grows in a long wait,
    /// and leaves time for the claims ahead.
    pub(crate) fn delay(&self, now: Instant) -> Duration {
        let between = u32::try_from(self.ahead.saturating_sub(1)).unwrap_or(u32::MAX);
        let passing = self.each.saturating_mul(between).saturating_mul(3) / 5;
        let waited = (now.since(self.moved) / PART).min(LONGEST);
        waited.saturating_add(passing).clamp(SHORTEST, FARTHEST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn a_wait_is_polled_often_at_first_and_rarely_later() {
        let mut pace = Pace::new(at(0), Duration::ZERO);
        pace.observe(1, at(0));
        assert_eq!(pace.delay(at(1)), SHORTEST);
        assert_eq!(pace.delay(at(160)), Duration::from_millis(10));
        assert_eq!(pace.delay(at(60_000)), LONGEST);
    }

    #[test]
    fn a_notified_waiter_still_polls() {
        let pace = Pace::new(at(0), Duration::ZERO);
        let delays = |rarely| [0, 8_000, 60_000].map(|now| pace.rare_delay(at(now), rarely));
        assert_eq!(delays(Rarely::SERVER), [200, 500, 1000].map(Duration::from_millis));
        #[cfg(feature = "sqlite")]
        assert_eq!(delays(Rarely::FILE), [20, 100, 100].map(Duration::from_millis));
    }

    #[test]
    fn the_middle_of_a_queue_is_given_time_to_pass() {
        let mut pace = Pace::new(at(0), Duration::ZERO);
        pace.observe(10, at(0));
        for ahead in (5..10).rev() {
            pace.observe(ahead, at(u64::try_from(10 - ahead).unwrap() * 5));
        }
        let far = pace.delay(at(25));
        assert!(far > Duration::from_millis(5), "{far:?}");
        pace.observe(1, at(30));
        assert_eq!(pace.delay(at(30)), SHORTEST);

        let mut pace = Pace::new(at(0), Duration::ZERO);
        pace.observe(100, at(0));
        pace.observe(90, at(100));
        assert_eq!(pace.delay(at(100)), FARTHEST);
    }
}
