//! How long the servers certainly keep a session.
//!
//! The leader ends a session that it has not heard of for a session timeout T. A request does not
//! tell it: a follower forwards requests, and the leader only checks that the session has not
//! ended. It hears of a session when a client creates it or comes back to it, and from its
//! followers, which name the sessions that they have heard at each of its pings, every half tick
//! (`LearnerHandler`, `SessionTrackerImpl` and `LearnerSessionTracker` in ZooKeeper's source). A
//! process that was stopped for nearly T can therefore have a write committed, and lose its session
//! a moment later.
//!
//! So a proof has two parts. A *pulse* is any request that was answered; it was sent at `s`. A
//! *beat* is a write, sent at least a quarter of T after the answer to the pulse, that a majority
//! has committed. In this quarter, which is at least half a tick, the follower has named the
//! session, or the connection has ended and the client has come back. The beat shows that the
//! session had not ended by then. Together they prove that it lives until `s` + T. A later leader
//! gives each session its whole timeout. `proof/dlock-models/src/zookeeper_session.rs` checks this rule.
//!
//! It assumes that the ping and the answer to it take at most a quarter of T less half a tick. With
//! the default of 15 s and ticks of 2 s, that leaves 2.75 s for the leader and the network.
//!
//! # Concurrency
//!
//! Any task records pulses and beats, in any order. The pulses change under their mutex. `proven`
//! only grows.

use std::{
    collections::VecDeque,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use dlock_core::Instant;
use parking_lot::Mutex;

/// The proof of one session.
pub(crate) struct Proof {
    timeout: Duration,
    pulses: Mutex<Pulses>,
    /// The latest time of sending that counts.
    proven: AtomicU64,
}

struct Pulses {
    last: Instant,
    /// Those that no beat has proven yet, the oldest first.
    waiting: VecDeque<Pulse>,
}

struct Pulse {
    sent: Instant,
    answered: Instant,
}

impl Proof {
    /// Begins with a session whose creation was sent at `began`. The leader hears of that at once.
    pub(crate) fn new(began: Instant, timeout: Duration) -> Self {
        let pulses = Pulses { last: began, waiting: VecDeque::new() };
        Self { timeout, pulses: Mutex::new(pulses), proven: AtomicU64::new(began.as_nanos()) }
    }

    /// Records the answer to a request that was sent at `sent`. The answer may be an error, but has
    /// to come from a server.
    pub(crate) fn pulse(&self, sent: Instant, now: Instant) {
        let mut pulses = self.pulses.lock();
        if sent >= pulses.last.saturating_add(self.timeout / 16) {
            pulses.last = sent;
            pulses.waiting.push_back(Pulse { sent, answered: now });
            // Any later beat proves the second one at least.
            while pulses.waiting.get(1).is_some_and(|second| self.proves(second, now)) {
                pulses.waiting.pop_front();
            }
        }
    }

    /// Records that a write was committed, which was sent at `sent`.
    pub(crate) fn beat(&self, sent: Instant, now: Instant) {
        let mut pulses = self.pulses.lock();
        while let Some(pulse) = pulses.waiting.front()
            && self.proves(pulse, sent)
        {
            self.proven.fetch_max(pulse.sent.as_nanos(), Ordering::AcqRel);
            pulses.waiting.pop_front();
        }
        drop(pulses);
        self.pulse(sent, now);
    }

    /// Returns whether a beat that is sent at `sent` proves this pulse.
    fn proves(&self, pulse: &Pulse, sent: Instant) -> bool {
        pulse.answered.saturating_add(self.timeout / 4) <= sent
    }

    /// Returns the time until which the servers keep the session.
    pub(crate) fn until(&self) -> Instant {
        Instant::from_nanos(self.proven.load(Ordering::Acquire)).saturating_add(self.timeout)
    }

    /// Returns the time at which the last pulse was sent.
    pub(crate) fn last_pulse(&self) -> Instant {
        self.pulses.lock().last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: Duration = Duration::from_secs(16);

    fn at(seconds: u64) -> Instant {
        Instant::from_nanos(Duration::from_secs(1000 + seconds).as_nanos().try_into().unwrap())
    }

    #[test]
    fn a_session_lives_for_its_timeout_from_its_creation() {
        assert_eq!(Proof::new(at(0), T).until(), at(16));
    }

    #[test]
    fn a_beat_proves_pulses_that_are_old_enough() {
        let proof = Proof::new(at(0), T);
        proof.pulse(at(2), at(3));
        proof.pulse(at(4), at(5));
        proof.beat(at(6), at(7));
        assert_eq!(proof.until(), at(16), "neither pulse is old enough");
        proof.beat(at(8), at(9));
        assert_eq!(proof.until(), at(2 + 16), "the first pulse");
        proof.beat(at(10), at(11));
        assert_eq!(proof.until(), at(4 + 16), "the second pulse");
        proof.beat(at(12), at(12));
        assert_eq!(proof.until(), at(6 + 16), "the first beat is a pulse too");
    }

    #[test]
    fn a_beat_after_a_long_stop_proves_nothing_new() {
        let proof = Proof::new(at(0), T);
        proof.pulse(at(1), at(2));
        proof.beat(at(15), at(15));
        assert_eq!(proof.until(), at(1 + 16));
        proof.beat(at(18), at(18));
        assert_eq!(proof.until(), at(1 + 16), "it is too close to the one before");
        proof.beat(at(19), at(19));
        assert_eq!(proof.until(), at(15 + 16));
    }

    #[test]
    fn answers_in_another_order_take_nothing_away() {
        let proof = Proof::new(at(0), T);
        proof.pulse(at(2), at(2));
        proof.beat(at(10), at(11));
        proof.beat(at(9), at(12));
        assert_eq!(proof.until(), at(2 + 16));
        assert_eq!(proof.last_pulse(), at(10));
    }

    #[test]
    fn pulses_that_come_fast_are_few() {
        let proof = Proof::new(at(0), T);
        for second in 1..=3 {
            for _ in 0..100 {
                proof.pulse(at(second), at(second));
            }
        }
        assert_eq!(proof.pulses.lock().waiting.len(), 3);
    }

    #[test]
    fn an_idle_client_keeps_few_pulses_and_the_newest_that_count() {
        let proof = Proof::new(at(0), T);
        for second in 1..=1000 {
            proof.pulse(at(second), at(second));
        }
        assert!(proof.pulses.lock().waiting.len() <= 6);
        proof.beat(at(1001), at(1001));
        assert_eq!(proof.until(), at(997 + 16));
    }
}
