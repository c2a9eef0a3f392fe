//! The options that all database servers have.

use std::{borrow::Cow, fmt, str::FromStr, time::Duration};

use dlock_core::{BackendUrl, ConfigIssue, Error, Format, LockOptions};

use crate::{
    engine::{Micros, Rarely, Settings},
    plain::Scheme,
};

/// How to use a database server; see [`PostgresConfig`](crate::PostgresConfig) and
/// [`MysqlConfig`](crate::MysqlConfig), which are this for one kind of server each.
///
/// It prints without the password.
#[derive(Clone)]
pub struct ServerConfig<Driver> {
    /// Where the server is and how to get in.
    pub(crate) driver: Driver,
    /// Kind and address, without secrets.
    pub(crate) store: String,
    pub(crate) create_schema: bool,
    pub(crate) connections: usize,
    pub(crate) durability: Durability,
    pub(crate) retention: Duration,
    pub(crate) patience: Duration,
    pub(crate) plain: Option<Scheme>,
    pub(crate) format: Format,
}

/// What has to survive a crash of the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Durability {
    /// Every grant: a statement is answered when the server has written it as durably as the server
    /// is configured to.
    #[default]
    Full,
    /// Not the grants of the last moments: statements are answered before they are on the disk.
    /// Who was granted a lock just before a crash may find another holder after it. Tokens grow
    /// all the same, since they follow the clock.
    Relaxed,
}

impl<Driver> ServerConfig<Driver> {
    /// Takes dlock's options out of a URL. The driver reads the rest.
    pub(crate) fn take(url: &mut BackendUrl, driver: Driver, store: String) -> Result<Self, Error> {
        let connections = url.take("connections").map(|text| text.parse::<usize>()).transpose();
        let connections = connections
            .map_err(|_| value("dlock.connections is a number of connections, 1 to 16"))?;
        let durability =
            url.take("durability").map(|text| text.parse::<Durability>()).transpose()?;
        let retention = url.take_duration("retention")?;
        let patience = url.take_duration("response_timeout")?;
        Self {
            driver,
            store,
            create_schema: url.take_bool("create_schema")?.unwrap_or(false),
            connections: connections.unwrap_or(2),
            durability: durability.unwrap_or_default(),
            retention: retention.unwrap_or(Duration::from_secs(24 * 60 * 60)),
            patience: patience.unwrap_or(Duration::from_secs(5)),
            format: url.take_format()?,
            plain: url.take("plain").map(|text| text.parse::<Scheme>()).transpose()?,
        }
        .checked()
    }

    /// Whether to make the tables where they are missing, which needs the right to. Off by default.
    #[must_use]
    pub fn with_create_schema(mut self, create_schema: bool) -> Self {
        self.create_schema = create_schema;
        self
    }

    /// How many connections write, 1 to 16; 2 by default. One more each renews, reads and, on
    /// PostgreSQL, listens. They are made when they are first needed.
    #[must_use]
    pub fn with_connections(mut self, connections: usize) -> Self {
        self.connections = connections;
        self
    }

    /// What has to survive a crash of the server.
    #[must_use]
    pub fn with_durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// How long the row of an unused lock is kept, 1 s or more, and twice the response time-out at
    /// least; a day by default. As long as it is there, the fencing tokens of the lock stay in order
    /// even if the server's clock is set back.
    #[must_use]
    pub fn with_retention(mut self, retention: Duration) -> Self {
        self.retention = retention;
        self
    }

    /// How long an answer may take, and how long an operation tries again while the server can't be
    /// reached, 10 ms to 60 s; 5 s by default.
    #[must_use]
    pub fn with_response_timeout(mut self, timeout: Duration) -> Self {
        self.patience = timeout;
        self
    }

    /// A table scheme that other programs know instead of dlock's own, for the mutex only, in the
    /// table `dlock_plain`.
    #[must_use]
    pub fn with_plain(mut self, scheme: Scheme) -> Self {
        self.plain = Some(scheme);
        self
    }

    /// In which format rows are written: the one that the version of dlock before this one reads,
    /// unless it is set to [`Format::NEWEST`] once no such program uses the database. All formats are
    /// read. `dlock.format` in a URL does the same.
    #[must_use]
    pub fn with_format(mut self, format: Format) -> Self {
        self.format = format;
        self
    }

    /// What the engine is told. `home` is where notes for it go.
    pub(crate) fn settings(&self, tick: Micros, home: u32) -> Settings {
        Settings {
            patience: self.patience,
            // What was stamped before may be written so much later.
            retention: self.retention.max(2 * self.patience),
            tick,
            rest: 1,
            home,
            rarely: Rarely::SERVER,
            format: self.format,
        }
    }

    pub(crate) fn checked(self) -> Result<Self, Error> {
        if !(1..=16).contains(&self.connections) {
            return Err(value("dlock.connections has to be 1 to 16"));
        }
        let range = |what: &str, time: Duration, from: Duration, to: Duration| {
            if time < from || time > to {
                return Err(value(format!("dlock.{what} has to be {from:?} to {to:?}")));
            }
            Ok(())
        };
        let (shortest, longest) = (Duration::from_millis(10), Duration::from_secs(60));
        range("response_timeout", self.patience, shortest, longest)?;
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
            .field("response_timeout", &self.patience)
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
            _ => Err(value("dlock.durability is full or relaxed")),
        }
    }
}

pub(crate) fn value(what: impl Into<Cow<'static, str>>) -> Error {
    Error::config(ConfigIssue::OptionValue, what)
}
