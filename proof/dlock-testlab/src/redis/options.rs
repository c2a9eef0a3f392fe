//! The options of a Redis server.

use crate::SteppedClock;

/// The options of a Redis server: each choice adds a line of configuration.
#[derive(Clone, Debug, Default)]
pub struct Options {
    pub(super) lines: Vec<String>,
    pub(super) password: Option<String>,
    pub(super) persistence: Persistence,
    pub(super) socket: bool,
    pub(super) tls: bool,
    pub(super) clock: Option<SteppedClock>,
}

/// The data that a Redis server keeps across a restart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Persistence {
    /// Nothing.
    #[default]
    None,
    /// Every acknowledged write: an append-only file, synced with each write.
    AofAlways,
}

impl Options {
    /// Returns the options of a server without persistence and without a password.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a line of `redis.conf`, such as `maxmemory 2mb` or `user alice on >secret ~* +@all`.
    #[must_use]
    pub fn with_config(mut self, line: &str) -> Self {
        self.lines.push(line.to_owned());
        self
    }

    /// Requires a password from all clients. It must consist of letters and digits.
    #[must_use]
    pub fn with_password(mut self, password: &str) -> Self {
        self.password = Some(password.to_owned());
        self
    }

    /// Sets the data that the server keeps across a restart.
    #[must_use]
    pub fn with_persistence(mut self, persistence: Persistence) -> Self {
        self.persistence = persistence;
        self
    }

    /// Makes the server listen on a Unix socket too.
    #[must_use]
    pub fn with_socket(mut self) -> Self {
        self.socket = true;
        self
    }

    /// Makes the server listen for TLS too, on another port and with a certificate that is created
    /// for it. With `tls-auth-clients yes` as a line of configuration, clients must present a
    /// certificate.
    #[must_use]
    pub fn with_tls(mut self) -> Self {
        self.tls = true;
        self
    }

    /// Makes the server a replica of the server at this address, which may be the address of a
    /// [`Proxy`](crate::Proxy).
    #[must_use]
    pub fn replica_of(self, address: &str) -> Self {
        self.with_config(&format!("replicaof {}", address.replace(':', " ")))
    }

    /// Makes the server use this wall clock, also after a restart.
    #[must_use]
    pub fn with_clock(mut self, clock: &SteppedClock) -> Self {
        self.clock = Some(clock.clone());
        self
    }

    /// Returns the part of a URL before the host.
    pub(super) fn user_info(&self) -> String {
        self.password.as_ref().map(|password| format!(":{password}@")).unwrap_or_default()
    }
}
