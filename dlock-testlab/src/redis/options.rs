//! How a Redis server is to be set up.

use crate::SteppedClock;

/// How a Redis server is to be set up: a line of its configuration for each choice.
#[derive(Clone, Debug, Default)]
pub struct Options {
    pub(super) lines: Vec<String>,
    pub(super) password: Option<String>,
    pub(super) persistence: Persistence,
    pub(super) socket: bool,
    pub(super) tls: bool,
    pub(super) clock: Option<SteppedClock>,
}

/// What a Redis server keeps over a restart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Persistence {
    /// Nothing.
    #[default]
    None,
    /// Everything that it acknowledged: an append-only file, synced with each write.
    AofAlways,
}

impl Options {
    /// A server that keeps nothing and asks for no password.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a line of `redis.conf`, such as `maxmemory 2mb` or `user alice on >secret ~* +@all`.
    #[must_use]
    pub fn with_config(mut self, line: &str) -> Self {
        self.lines.push(line.to_owned());
        self
    }

    /// Asks everybody for a password, of letters and digits.
    #[must_use]
    pub fn with_password(mut self, password: &str) -> Self {
        self.password = Some(password.to_owned());
        self
    }

    /// Sets what it keeps over a restart.
    #[must_use]
    pub fn with_persistence(mut self, persistence: Persistence) -> Self {
        self.persistence = persistence;
        self
    }

    /// Listens on a Unix socket, too.
    #[must_use]
    pub fn with_socket(mut self) -> Self {
        self.socket = true;
        self
    }

    /// Listens for TLS, too, on a port of its own and with a certificate made for it.
    /// `tls-auth-clients yes` as a line of configuration has clients show one.
    #[must_use]
    pub fn with_tls(mut self) -> Self {
        self.tls = true;
        self
    }

    /// Makes it a replica of the server at this address, which may be that of a
    /// [`Proxy`](crate::Proxy) before it.
    #[must_use]
    pub fn replica_of(self, address: &str) -> Self {
        self.with_config(&format!("replicaof {}", address.replace(':', " ")))
    }

    /// Has it go by this wall clock, also when it starts again.
    #[must_use]
    pub fn with_clock(mut self, clock: &SteppedClock) -> Self {
        self.clock = Some(clock.clone());
        self
    }

    /// What stands before the host in a URL.
    pub(super) fn user_info(&self) -> String {
        self.password.as_ref().map(|password| format!(":{password}@")).unwrap_or_default()
    }
}
