//! The options of all database servers.

use std::{borrow::Cow, fmt, str::FromStr, time::Duration};

use dlock_core::{BackendUrl, ConfigIssue, Error, LockOptions};

use crate::{
    engine::{EngineSettings, Micros, Rarely},
    plain::Scheme,
};

/// The configuration of a database server. [`PostgresConfig`](crate::PostgresConfig) and
/// [`MysqlConfig`](crate::MysqlConfig) are this type for one kind of server each.
///
/// Its `Debug` omits the password.
#[derive(Clone)]
pub struct ServerConfig<Driver> {
    /// The address of the server, and the login.
    pub(crate) driver: Driver,
    /// The kind and the address of the store, without secrets.
    pub(crate) store: String,
    pub(crate) create_schema: bool,
    pub(crate) connections: usize,
    pub(crate) durability: Durability,
    pub(crate) retention: Duration,
    pub(crate) response_timeout: Duration,
    pub(crate) plain: Option<Scheme>,
}

/// The grants that survive a crash of the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Durability {
    /// Every grant: the server answers a statement when it has written it as durably as it is
    /// configured to.
    #[default]
    Full,
    /// All but the last grants: the server answers statements before they are on the disk. If a
    /// lock was granted just before a crash, another claim may hold it after the crash. Tokens
    /// still grow, since they follow the clock.
    Relaxed,
}

impl<Driver> ServerConfig<Driver> {
    /// Takes dlock's options out of a URL. The driver reads the rest.
    pub(crate) fn take(url: &mut BackendUrl, driver: Driver, store: String) -> Result<Self, Error> {
        let connections = url.take("connections").map(|text| text.parse::<usize>()).transpose();
        let connections = connections
            .map_err(|_| value("dlock.connections can't be read: write a number from 1 to 16"))?;
        let durability =
            url.take("durability").map(|text| text.parse::<Durability>()).transpose()?;
        let retention = url.take_duration("retention")?;
        let response_timeout = url.take_duration("response_timeout")?;
        Self {
            driver,
            store,
            create_schema: url.take_bool("create_schema")?.unwrap_or(false),
            connections: connections.unwrap_or(2),
            durability: durability.unwrap_or_default(),
            retention: retention.unwrap_or(Duration::from_secs(24 * 60 * 60)),
            response_timeout: response_timeout.unwrap_or(Duration::from_secs(5)),
            plain: url.take("plain").map(|text| text.parse::<Scheme>()).transpose()?,
        }
        // Checked here, too, so that the error of a URL comes before any I/O.
        .checked()
    }

    /// Sets whether dlock creates missing tables, which needs the right to do so. Off by default.
    #[must_use]
    pub fn with_create_schema(mut self, create_schema: bool) -> Self {
        self.create_schema = create_schema;
        self
    }

    /// Sets the largest number of connections that write at the same time, 1 to 16; 2 by default.
    /// At most one more renews, one reads and, on PostgreSQL, one listens. Each connection is
    /// opened when it is needed: a process that does one thing at a time has one.
    #[must_use]
    pub fn with_connections(mut self, connections: usize) -> Self {
        self.connections = connections;
        self
    }

    /// Sets which grants survive a crash of the server.
    #[must_use]
    pub fn with_durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// Sets how long the row of an unused lock is kept, at least 1 s and twice the response
    /// timeout; a day by default. While the row exists, the fencing tokens of the lock grow even if
    /// the server's clock is set back.
    #[must_use]
    pub fn with_retention(mut self, retention: Duration) -> Self {
        self.retention = retention;
        self
    }

    /// Sets how long to wait for an answer, and how long an operation is retried while the server
    /// is unreachable, 10 ms to 60 s; 5 s by default.
    #[must_use]
    pub fn with_response_timeout(mut self, timeout: Duration) -> Self {
        self.response_timeout = timeout;
        self
    }

    /// Uses a table scheme that other programs know instead of dlock's own, for the mutex only, in
    /// the table `dlock_plain`.
    #[must_use]
    pub fn with_plain(mut self, scheme: Scheme) -> Self {
        self.plain = Some(scheme);
        self
    }

    /// Returns the settings of the engine. `home` is the number by which notifications reach it.
    pub(crate) fn settings(&self, tick: Micros, home: u32) -> EngineSettings {
        EngineSettings {
            response_timeout: self.response_timeout,
            // A statement may be written this much later than the time that it contains.
            retention: self.retention.max(2 * self.response_timeout),
            tick,
            rest: 1,
            home,
            rarely: Rarely::SERVER,
        }
    }

    pub(crate) fn checked(self) -> Result<Self, Error> {
        if !(1..=16).contains(&self.connections) {
            return Err(value("dlock.connections is out of range: use 1 to 16"));
        }
        let range = BackendUrl::within;
        // With a response timeout below 10 ms, a busy server would count as unreachable.
        let (shortest, longest) = (Duration::from_millis(10), Duration::from_secs(60));
        range("response_timeout", self.response_timeout, shortest, longest)?;
        range("retention", self.retention, Duration::from_secs(1), 366 * LockOptions::MAX_LEASE)?;
        Ok(self)
    }
}

impl<Driver> fmt::Debug for ServerConfig<Driver> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerConfig")
            .field("store", &self.store)
            .field("create_schema", &self.create_schema)
            .field("connections", &self.connections)
            .field("durability", &self.durability)
            .field("retention", &self.retention)
            .field("response_timeout", &self.response_timeout)
            .field("plain", &self.plain)
            .finish_non_exhaustive()
    }
}

impl FromStr for Durability {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        match text {
            "full" => Ok(Self::Full),
            "relaxed" => Ok(Self::Relaxed),
            _ => Err(value("dlock.durability can't be read: write full or relaxed")),
        }
    }
}

pub(crate) fn value(what: impl Into<Cow<'static, str>>) -> Error {
    Error::config(ConfigIssue::OptionValue, what)
}
