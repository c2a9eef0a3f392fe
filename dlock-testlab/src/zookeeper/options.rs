//! How a ZooKeeper server is to be set up.

use std::time::Duration;

use crate::SteppedClock;

/// How a ZooKeeper server is to be set up, or each server of an ensemble.
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
    /// A server that does not sync, without TLS, that ticks twice a second, lets sessions last for
    /// two ticks up to a minute, and looks for empty containers each second.
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

    /// Adds a line of `zoo.cfg`, such as `ssl.clientAuth=need` or `globalOutstandingLimit=10`. Of
    /// two lines for the same the later one holds.
    #[must_use]
    pub fn with_config(mut self, line: &str) -> Self {
        self.lines.push(line.to_owned());
        self
    }

    /// Sets a system property of Java, such as `znode.container.maxPerMinute`. Of two for the same
    /// the later one holds.
    #[must_use]
    pub fn with_property(mut self, name: &str, value: &str) -> Self {
        self.properties.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Sets the tick: sessions end on a tick, up to one later than they last.
    #[must_use]
    pub fn with_tick(mut self, tick: Duration) -> Self {
        self.tick = tick;
        self
    }

    /// Sets for how long sessions may last. Clients that ask for less or more get these.
    #[must_use]
    pub fn with_sessions(mut self, shortest: Duration, longest: Duration) -> Self {
        self.sessions = Some((shortest, longest));
        self
    }

    /// Sets how long followers and their leader believe in each other without a word, two seconds
    /// unless set. It is rounded up to ticks.
    #[must_use]
    pub fn with_sync_limit(mut self, limit: Duration) -> Self {
        self.sync = limit;
        self
    }

    /// Sets how often it removes containers that are empty, and how old such must be that never had
    /// a child.
    #[must_use]
    pub fn with_container_checks_every(mut self, pause: Duration) -> Self {
        self.containers = pause;
        self
    }

    /// Lets it answer only these four-letter words, such as `ruok,mntr`, instead of all; and
    /// `srvr`, by which it is known to be ready.
    #[must_use]
    pub fn with_words(mut self, words: &str) -> Self {
        self.words = format!("srvr,{words}");
        self
    }

    /// Listens for TLS, too, on a port of its own and with a certificate made for it.
    /// `ssl.clientAuth=need` as a line of configuration has clients show one.
    #[must_use]
    pub fn with_tls(mut self) -> Self {
        self.tls = true;
        self
    }

    /// Sets whether it waits until the disk has what it acknowledges. That is for benchmarks: only
    /// a machine that loses its power loses what was not synced. A server that is killed loses
    /// nothing either way.
    #[must_use]
    pub fn with_fsync(mut self, fsync: bool) -> Self {
        self.fsync = fsync;
        self
    }

    /// Sets whether it has all of Java's compiler and a gigabyte of memory, for benchmarks and for
    /// hundreds of thousands of nodes, or starts fast and stays small.
    #[must_use]
    pub fn with_room(mut self, roomy: bool) -> Self {
        self.roomy = roomy;
        self
    }

    /// Has the first server of an ensemble decide alone, and the others observe.
    #[must_use]
    pub fn with_observers(mut self) -> Self {
        self.observers = true;
        self
    }

    /// Has it go by this wall clock, also when it starts again. Sessions don't: they last by
    /// a monotonic one.
    #[must_use]
    pub fn with_clock(mut self, clock: &SteppedClock) -> Self {
        self.clock = Some(clock.clone());
        self
    }

    /// For how long sessions may last.
    pub(super) fn sessions(&self) -> (Duration, Duration) {
        self.sessions.unwrap_or((self.tick * 2, Duration::from_secs(60)))
    }

    /// How many ticks these are at least.
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
