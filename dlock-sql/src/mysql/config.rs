//! Where the server is and how to get in.

use std::fmt;

use dlock_core::{BackendUrl, Error};
use sqlx::{ConnectOptions as _, MySqlPool, mysql::MySqlConnectOptions};

use super::{error::classify, way::Source};
use crate::server::{Durability, ServerConfig, value};

mod address;

/// How to open a [`Mysql`](super::Mysql).
///
/// ```
/// use dlock_sql::MysqlConfig;
/// # fn main() -> Result<(), dlock_core::Error> {
/// let url = "mysql://app:secret@db.example.org/locks?ssl-mode=VERIFY_IDENTITY";
/// # #[cfg(feature = "tls")]
/// let config = MysqlConfig::from_url(&url.parse()?)?.with_create_schema(true);
/// # Ok(())
/// # }
/// ```
pub type MysqlConfig = ServerConfig<MysqlDriver>;

/// The driver's part of a [`MysqlConfig`].
#[derive(Clone)]
#[expect(unnameable_types, reason = "only MysqlConfig is made of it")]
pub struct MysqlDriver {
    /// **They print the password.**
    pub(super) options: MySqlConnectOptions,
    pub(super) pool: Option<MySqlPool>,
    pub(super) returning: Option<bool>,
}

impl ServerConfig<MysqlDriver> {
    /// The statements that make dlock's tables, for who does it himself: `mysql/schema.sql` of this
    /// crate. Running them again changes nothing.
    pub const SCHEMA: &'static str = super::queries::SCHEMA;

    /// The statement that makes the table of the plain mode: `mysql/plain.sql` of this crate.
    pub const PLAIN_SCHEMA: &'static str = super::queries::PLAIN_SCHEMA;

    /// The `dlock.*` options of a URL.
    pub(super) const OPTIONS: &'static [&'static str] = &[
        "connections",
        "create_schema",
        "durability",
        "format",
        "plain",
        "response_timeout",
        "retention",
        "returning",
    ];

    /// Reads `mysql://user:password@host:port/database` or the same with `mariadb:`, with dlock's
    /// options, which the crate's documentation lists, and these of the driver:
    ///
    /// * `ssl-mode`: `DISABLED`, or with the feature `tls` `REQUIRED` (which encrypts, but believes
    ///   whoever answers), `VERIFY_CA` or `VERIFY_IDENTITY`. It may be left out for a server on
    ///   this machine, with which it is `DISABLED`.
    /// * `ssl-ca`, `ssl-cert`, `ssl-key`: files in PEM.
    /// * `socket`: the path of the server's socket, instead of host and port.
    /// * `charset`, `collation`, `timezone`: dlock's statements do not depend on them.
    ///
    /// The port is 3306 unless it is given. User, password and database are percent-encoded.
    ///
    /// # Errors
    /// `Config`: `Url`, `OptionValue`, `UnknownOption`, `RepeatedOption`, or `MissingFeature` for
    /// TLS without the feature.
    pub fn from_url(url: &BackendUrl) -> Result<Self, Error> {
        let mut url = url.clone();
        let chosen = address::options_of(&url)?;
        let options: MySqlConnectOptions =
            url.for_driver().parse().map_err(|error| address::unreadable(classify(error).error))?;
        let (options, store) = chosen.apply(options)?;
        let options = options.disable_statement_logging();
        let driver = MysqlDriver { options, pool: None, returning: url.take_bool("returning")? };
        Self::take(&mut url, driver, store)?.supported()
    }

    /// Uses the application's pool. Each statement takes a connection out of it and gives it back
    /// at once, so a pool of one will do. Renewals, and all of the plain mode, have connections of
    /// their own, made with the pool's options, so that an exhausted pool can't cost a lock.
    ///
    /// Statements run under the settings of the pool's connections, which must have `autocommit`
    /// and a strict `sql_mode`, as they have unless they are told otherwise; whether they do is asked
    /// before each. One that was left otherwise, or in a transaction, is closed. Statements name the
    /// tables with the database of the pool's options, so a `USE` that somebody leaves behind does
    /// not lead elsewhere. The server goes on with a statement that is given up here for as long as
    /// the connection's `innodb_lock_wait_timeout` lets it.
    ///
    /// # Errors
    /// `Config(Url)` for a pool whose options name no database.
    pub fn from_pool(pool: MySqlPool) -> Result<Self, Error> {
        let options = MySqlConnectOptions::clone(&pool.connect_options());
        let store = address::store(&options)?;
        let driver = MysqlDriver { options, pool: Some(pool), returning: None };
        let mut url: BackendUrl = "mysql:".parse()?;
        Self::take(&mut url, driver, store)
    }

    /// Whether the server can return the rows that it writes (`INSERT ... RETURNING`), which saves
    /// half of the round trips. By default this is found out: MariaDB can, MySQL can't. To be set
    /// for a server or proxy that calls itself one and is the other.
    #[must_use]
    pub fn with_returning(mut self, returning: bool) -> Self {
        self.driver.returning = Some(returning);
        self
    }

    /// Refuses what no server of this kind can do.
    pub(super) fn supported(self) -> Result<Self, Error> {
        match self.durability {
            Durability::Full => self.checked(),
            Durability::Relaxed => Err(value(
                "dlock.durability=relaxed can't be had: MySQL and MariaDB relax all statements or \
                 none; leave it out, and set innodb_flush_log_at_trx_commit=2 on the server",
            )),
        }
    }
}

impl MysqlDriver {
    /// Where connections come from that are dlock's own.
    pub(super) fn own(&self) -> Source {
        match &self.pool {
            Some(pool) => Source::Beside(pool.clone()),
            None => Source::Own(Box::new(self.options.clone())),
        }
    }

    /// Where other connections come from.
    pub(super) fn shared(&self) -> Source {
        self.pool.clone().map_or_else(|| self.own(), Source::Pool)
    }
}

impl fmt::Debug for MysqlDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MysqlDriver").field("returning", &self.returning).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
