//! The options of a PostgreSQL server.

use crate::SteppedClock;

/// The options of a PostgreSQL server.
#[derive(Clone, Debug)]
pub struct Options {
    pub(super) lines: Vec<String>,
    pub(super) max_connections: u32,
    pub(super) tls: bool,
    pub(super) fsync: bool,
    /// The URL of the primary that the server follows.
    pub(super) primary: Option<String>,
    pub(super) clock: Option<SteppedClock>,
}

impl Options {
    /// Returns the options of a server that does not sync, without TLS, for at most 100
    /// connections.
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
    /// If two lines set the same parameter, the later one applies.
    #[must_use]
    pub fn with_config(mut self, line: &str) -> Self {
        self.lines.push(line.to_owned());
        self
    }

    /// Sets the maximum number of connections. Three of them are reserved for the administrator.
    #[must_use]
    pub fn with_max_connections(mut self, connections: u32) -> Self {
        self.max_connections = connections;
        self
    }

    /// Enables TLS for clients that request it, on the same port and with a certificate that is
    /// created for the server.
    #[must_use]
    pub fn with_tls(mut self) -> Self {
        self.tls = true;
        self
    }

    /// Sets whether a commit waits until its data is on the disk. This is for benchmarks: only a
    /// power failure loses data that was not synced. A killed server loses nothing either way.
    #[must_use]
    pub fn with_fsync(mut self, fsync: bool) -> Self {
        self.fsync = fsync;
        self
    }

    /// Makes the server use this wall clock, also after a restart.
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
