//! How a PostgreSQL server is to be set up.

use crate::SteppedClock;

/// How a PostgreSQL server is to be set up.
#[derive(Clone, Debug)]
pub struct Options {
    pub(super) lines: Vec<String>,
    pub(super) max_connections: u32,
    pub(super) tls: bool,
    pub(super) fsync: bool,
    /// The URL of the server that it follows.
    pub(super) primary: Option<String>,
    pub(super) clock: Option<SteppedClock>,
}

impl Options {
    /// A server that does not sync, without TLS, for at most 100 connections.
    pub fn new() -> Self {
        Self {
            lines: Vec::new(),
            max_connections: 100,
            tls: false,
            fsync: false,
            primary: None,
            clock: None,
        }
    }

    /// Adds a line of `postgresql.conf`, such as `default_transaction_isolation = 'serializable'`.
    /// Of two lines for the same the later one holds.
    #[must_use]
    pub fn with_config(mut self, line: &str) -> Self {
        self.lines.push(line.to_owned());
        self
    }

    /// Sets how many connections there may be, of which three are kept for the administrator.
    #[must_use]
    pub fn with_max_connections(mut self, connections: u32) -> Self {
        self.max_connections = connections;
        self
    }

    /// Speaks TLS with clients that ask for it, on the same port and with a certificate made for
    /// it.
    #[must_use]
    pub fn with_tls(mut self) -> Self {
        self.tls = true;
        self
    }

    /// Sets whether it waits until the disk has what it commits. That is for benchmarks: only a
    /// machine that loses its power loses what was not synced. A server that is killed loses
    /// nothing either way.
    #[must_use]
    pub fn with_fsync(mut self, fsync: bool) -> Self {
        self.fsync = fsync;
        self
    }

    /// Has it go by this wall clock, also when it starts again.
    #[must_use]
    pub fn with_clock(mut self, clock: &SteppedClock) -> Self {
        self.clock = Some(clock.clone());
        self
    }
}

impl Default for Options {
    fn default() -> Self {
        Self::new()
    }
}
