//! The options of a ZooKeeper server.

use std::time::Duration;

use crate::SteppedClock;

/// The options of a ZooKeeper server, or of each server of an ensemble.
#[derive(Clone, Debug)]
pub struct Options {
    pub(super) lines: Vec<String>,
    pub(super) properties: Vec<(String, String)>,
    pub(super) tick: Duration,
    pub(super) sessions: Option<(Duration, Duration)>,
    pub(super) sync: Duration,
    pub(super) containers: Duration,
    pub(super) words: String,
    pub(super) tls: bool,
    pub(super) fsync: bool,
    pub(super) roomy: bool,
    pub(super) observers: bool,
    pub(super) clock: Option<SteppedClock>,
}

impl Options {
    /// Returns the options of a server that does not sync, without TLS. It ticks twice a second,
    /// its sessions last between two ticks and a minute, and it checks for empty containers each
    /// second.
    pub fn new() -> Self {
        Self {
            lines: Vec::new(),
            properties: Vec::new(),
            tick: Duration::from_millis(500),
            sessions: None,
            sync: Duration::from_secs(2),
            containers: Duration::from_secs(1),
            words: "*".to_owned(),
            tls: false,
            fsync: false,
            roomy: false,
            observers: false,
            clock: None,
        }
    }

    /// Adds a line of `zoo.cfg`, such as `ssl.clientAuth=need` or `globalOutstandingLimit=10`. If
    /// two lines set the same option, the later one applies.
    #[must_use]
    pub fn with_config(mut self, line: &str) -> Self {
        self.lines.push(line.to_owned());
        self
    }

    /// Sets a system property of Java, such as `znode.container.maxPerMinute`. If a property is set
    /// twice, the later value applies.
    #[must_use]
    pub fn with_property(mut self, name: &str, value: &str) -> Self {
        self.properties.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Sets the tick. A session ends on a tick, up to one tick after its timeout.
    #[must_use]
    pub fn with_tick(mut self, tick: Duration) -> Self {
        self.tick = tick;
        self
    }

    /// Sets the bounds of session timeouts. A client that requests a shorter or longer one gets the
    /// bound.
    #[must_use]
    pub fn with_sessions(mut self, shortest: Duration, longest: Duration) -> Self {
        self.sessions = Some((shortest, longest));
        self
    }

    /// Sets how long followers and their leader stay connected without a message. The default is
    /// two seconds. The value is rounded up to ticks.
    #[must_use]
    pub fn with_sync_limit(mut self, limit: Duration) -> Self {
        self.sync = limit;
        self
    }

    /// Sets how often the server removes empty containers, and the age from which it removes one
    /// that never had a child.
    #[must_use]
    pub fn with_container_checks_every(mut self, pause: Duration) -> Self {
        self.containers = pause;
        self
    }

    /// Makes the server answer only these four-letter words, such as `ruok,mntr`, instead of all.
    /// It also answers `srvr`, which shows that it is ready.
    #[must_use]
    pub fn with_words(mut self, words: &str) -> Self {
        self.words = format!("srvr,{words}");
        self
    }

    /// Makes the server listen for TLS too, on another port and with a certificate that is created
    /// for it. With `ssl.clientAuth=need` as a line of configuration, clients must present a
    /// certificate.
    #[must_use]
    pub fn with_tls(mut self) -> Self {
        self.tls = true;
        self
    }

    /// Sets whether an acknowledgement waits until the data is on the disk. This is for benchmarks:
    /// only a power failure loses data that was not synced. A killed server loses nothing either
    /// way.
    #[must_use]
    pub fn with_fsync(mut self, fsync: bool) -> Self {
        self.fsync = fsync;
        self
    }

    /// Sets whether the server uses Java's whole compiler and a gigabyte of memory, for benchmarks
    /// and for hundreds of thousands of nodes. Otherwise it starts fast and stays small.
    #[must_use]
    pub fn with_room(mut self, roomy: bool) -> Self {
        self.roomy = roomy;
        self
    }

    /// Makes the first server of an ensemble the only voter, and the others observers.
    #[must_use]
    pub fn with_observers(mut self) -> Self {
        self.observers = true;
        self
    }

    /// Makes the server use this wall clock, also after a restart. Sessions are not affected: they
    /// use a monotonic clock.
    #[must_use]
    pub fn with_clock(mut self, clock: &SteppedClock) -> Self {
        self.clock = Some(clock.clone());
        self
    }

    /// Returns the bounds of session timeouts.
    pub(super) fn sessions(&self) -> (Duration, Duration) {
        self.sessions.unwrap_or((self.tick * 2, Duration::from_secs(60)))
    }

    /// Returns the number of ticks in this time, rounded up.
    pub(super) fn ticks(&self, time: Duration) -> u128 {
        time.as_millis().div_ceil(self.tick.as_millis().max(1)).max(1)
    }
}

impl Default for Options {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_rounded_up_to_ticks() {
        let options = Options::new().with_tick(Duration::from_millis(150));
        let ticks = |millis| options.ticks(Duration::from_millis(millis));
        assert_eq!([0, 1, 150, 151, 300].map(ticks), [1, 1, 1, 2, 2]);
    }
}
