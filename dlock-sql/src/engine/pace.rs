//! How soon it is worth looking again at a lock that somebody here waits for.

use std::time::Duration;

use dlock_core::Instant;

pub(crate) const SHORTEST: Duration = Duration::from_micros(500);
pub(crate) const LONGEST: Duration = Duration::from_millis(20);
/// For those who stand far behind in a queue whose pace is known.
const FARTHEST: Duration = Duration::from_millis(100);
/// Looking costs a part of this of the time that has been waited, so a hand-over is noticed late
/// by no more than that part.
const PART: u32 = 16;

/// How those look who are told, unless what tells them gets lost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rarely {
    shortest: Duration,
    longest: Duration,
    /// A note that has not arrived by then is lost.
    late: Duration,
}

impl Rarely {
    /// Where notes come from a server, and a look is a question to it.
    pub(crate) const SERVER: Self = Self {
        shortest: Duration::from_millis(200),
        longest: Duration::from_secs(1),
        late: Duration::from_secs(1),
    };

    /// Where they come from a neighbour, who may be unable to send any, and a look is cheap.
    #[cfg(feature = "sqlite")]
    pub(crate) const FILE: Self = Self {
        shortest: Duration::from_millis(20),
        longest: Duration::from_millis(100),
        late: Duration::from_millis(10),
    };

    /// Never, as far as a test can tell.
    #[cfg(all(test, feature = "sqlite"))]
    pub(crate) const NEVER: Self = Self {
        shortest: Duration::from_secs(3600),
        longest: Duration::from_secs(3600),
        late: Duration::from_millis(10),
    };

    /// When a note of a grant that began so has been lost.
    pub(crate) fn lost(self, began: Instant) -> Instant {
        began.saturating_add(self.late)
    }
}

impl Default for Rarely {
    fn default() -> Self {
        Self::SERVER
    }
}

/// The movement of one queue, seen from the first of our waiters in it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// How many stand before it, the holders included.
    ahead: usize,
    /// How long the quickest of them took, lately.
    each: Duration,
    /// When the queue last moved.
    moved: Instant,
}

impl Pace {
    /// Of a queue in which one took so long when it was last seen; zero if it never was.
    pub(crate) const fn new(now: Instant, each: Duration) -> Self {
        Self { ahead: 1, each, moved: now }
    }

    /// How long one of the queue takes.
    pub(crate) const fn each(&self) -> Duration {
        self.each
    }

    /// The queue was seen with so many before our first waiter.
    pub(crate) fn observe(&mut self, ahead: usize, now: Instant) {
        if let Some(left) = self.ahead.checked_sub(ahead).filter(|left| *left > 0) {
            let took = now.since(self.moved) / u32::try_from(left).unwrap_or(u32::MAX);
            // The quickest of late: whoever comes too late to its turn slows all others down, who
            // would take that for the pace, and come later still.
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

    /// When to look again although one would have been told.
    pub(crate) fn rare_delay(&self, now: Instant, rarely: Rarely) -> Duration {
        (now.since(self.moved) / PART).clamp(rarely.shortest, rarely.longest)
    }

    /// When to look again: soon after the last change, ever more rarely in a long wait, and not
    /// before those in the middle of the queue can have passed.
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
    fn a_wait_is_looked_at_often_at_first_and_rarely_later() {
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
