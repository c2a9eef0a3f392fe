//! The configuration of a MySQL or MariaDB store.

use std::fmt;

use dlock_core::{BackendUrl, Error};
use sqlx::{ConnectOptions as _, MySqlPool, mysql::MySqlConnectOptions};

use super::{connector::Source, error::classify, url};
use crate::server::{Durability, ServerConfig, value};

/// The configuration of a [`Mysql`](super::Mysql) store.
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
    /// **Their `Debug` prints the password.**
    pub(super) options: MySqlConnectOptions,
    pub(super) pool: Option<MySqlPool>,
    pub(super) returning: Option<bool>,
}

impl ServerConfig<MysqlDriver> {
    /// The statements that create dlock's tables, to run them by hand: `mysql/schema.sql` of this
    /// crate. Running them again changes nothing.
    pub const SCHEMA: &'static str = super::queries::SCHEMA;

    /// The statement that creates the table of the plain mode: `mysql/plain.sql` of this crate.
    pub const PLAIN_SCHEMA: &'static str = super::queries::PLAIN_SCHEMA;

    /// The `dlock.*` options of a URL.
    pub(super) const OPTIONS: &'static [&'static str] =
        &["connections", "create_schema", "durability", "plain", "response_timeout", "retention"];

    /// Reads `mysql://user:password@host:port/database` or the same with `mariadb:`, with dlock's
    /// options, which the crate's documentation lists, and these of the driver:
    ///
    /// * `ssl-mode`: `DISABLED`, or with the feature `tls` `REQUIRED` (which encrypts, but accepts
    ///   any server), `VERIFY_CA` or `VERIFY_IDENTITY`. It may be omitted for a server on this
    ///   machine; then it is `DISABLED`.
    /// * `ssl-ca`, `ssl-cert`, `ssl-key`: files in PEM.
    /// * `socket`: the path of the server's socket, instead of host and port.
    /// * `charset`, `collation`, `timezone`: dlock's statements do not depend on them.
    ///
    /// The default port is 3306. User, password and database are percent-encoded.
    ///
    /// # Errors
    /// `Config`: `Url`, `OptionValue`, `UnknownOption`, `RepeatedOption`, or `MissingFeature` for
    /// TLS without the feature.
    pub fn from_url(url: &BackendUrl) -> Result<Self, Error> {
        let mut url = url.clone();
        let chosen = url::options_of(&url)?;
        let options: MySqlConnectOptions = url::for_driver(&url)
            .parse()
            .map_err(|error| url::unreadable(classify(error).error))?;
        let (options, store) = chosen.apply(options)?;
        let options = options.disable_statement_logging();
        let driver = MysqlDriver { options, pool: None, returning: None };
        Self::take(&mut url, driver, store)?.supported()
    }

    /// Uses the application's pool. Each statement takes a connection out of it and returns it at
    /// once, so a pool with one connection is enough. Renewals, and the whole plain mode, have
    /// their own connections, which use the pool's options. So an exhausted pool can't cause the
    /// loss of a lock.
    /// If the pool is closed, dlock continues on connections of its own, so that its locks can be
    /// renewed and released.
    ///
    /// Statements run under the settings of the pool's connections, which must have `autocommit`
    /// and a strict `sql_mode`, as they have by default. dlock checks this before each statement. A
    /// connection with other settings, or with an open transaction, is closed. Statements name the
    /// tables with the database of the pool's options, so a `USE` of another part of the
    /// application has no effect on them. If dlock stops waiting for a statement, the server
    /// continues it for at most the connection's `innodb_lock_wait_timeout`.
    ///
    /// # Errors
    /// `Config(Url)` for a pool whose options name no database.
    pub fn from_pool(pool: MySqlPool) -> Result<Self, Error> {
        let options = MySqlConnectOptions::clone(&pool.connect_options());
        let store = url::store(&options)?;
        let driver = MysqlDriver { options, pool: Some(pool), returning: None };
        let mut url: BackendUrl = "mysql:".parse()?;
        Self::take(&mut url, driver, store)
    }

    /// Sets whether the server can return the rows that it writes (`INSERT ... RETURNING`), which
    /// saves half of the round trips. dlock detects this: MariaDB can, MySQL can't. Tests use it to
    /// run the statements for MySQL on MariaDB.
    #[doc(hidden)]
    #[must_use]
    pub fn with_returning(mut self, returning: bool) -> Self {
        self.driver.returning = Some(returning);
        self
    }

    /// Refuses options that no server of this kind supports.
    pub(super) fn supported(self) -> Result<Self, Error> {
        match self.durability {
            Durability::Full => self.checked(),
            Durability::Relaxed => Err(value(
                "dlock.durability=relaxed is not possible on MySQL and MariaDB, which relax all \
                 statements or none: leave it out, and set innodb_flush_log_at_trx_commit=2 on the \
                 server",
            )),
        }
    }
}

impl MysqlDriver {
    /// Returns the source of dlock's own connections.
    pub(super) fn own(&self) -> Source {
        match &self.pool {
            Some(pool) => Source::Beside(pool.clone()),
            None => Source::Own(Box::new(self.options.clone())),
        }
    }

    /// Returns the source of other connections.
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
