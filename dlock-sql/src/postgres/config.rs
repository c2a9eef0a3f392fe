//! Reading a configuration: where the server is and how it is used.

use std::str::FromStr as _;

use dlock_core::{BackendUrl, ConfigIssue, Error};
use sqlx::{
    PgPool,
    postgres::{PgConnectOptions, PgSslMode},
};

use super::{
    driver::{PostgresConfig, PostgresDriver},
    queries, url,
};

impl PostgresConfig {
    /// The statements that make dlock's tables, for who does it himself: `schema.sql` of this
    /// crate, which also says what rights users of the locks need. Running them again changes
    /// nothing.
    pub const SCHEMA: &'static str = queries::SCHEMA;

    /// The statement that makes the table of the plain mode: `postgres/plain.sql` of this crate.
    pub const PLAIN_SCHEMA: &'static str = queries::PLAIN_SCHEMA;

    /// The statement that makes the table of the advisory mode: `postgres/advisory/schema.sql` of
    /// this crate.
    pub const ADVISORY_SCHEMA: &'static str = super::advisory::SCHEMA;

    /// Reads `postgres://user:password@host:port/database?sslmode=verify-full`. What is left out is
    /// taken from the environment as by other clients of PostgreSQL (`PGHOST`, `PGPASSWORD`,
    /// `~/.pgpass` and so on), except for the TLS mode.
    ///
    /// The driver's options are `sslmode`, `sslrootcert`, `sslcert`, `sslkey`, `application_name`,
    /// `host` (also the directory of a socket), `hostaddr`, `port`, `user`, `password`, `dbname`,
    /// `options` and `options[NAME]`, such as `options[search_path]`. A server on another machine
    /// needs an `sslmode`: `disable`, `require`, `verify-ca` or `verify-full`.
    ///
    /// # Errors
    /// `Config`: `Url`, `OptionValue`, `RepeatedOption`, `UnknownOption` for one of another driver,
    /// or `MissingFeature`.
    pub fn from_url(url: &BackendUrl) -> Result<Self, Error> {
        let mut url = url.clone();
        let tls = url::check(&url)?;
        let pooler = url.take_bool("pooler")?.unwrap_or(false);
        let advisory = url.take_bool("advisory")?.unwrap_or(false);
        let listen = url.take_bool("listen")?;
        let options = PgConnectOptions::from_str(&url.for_driver()).map_err(|error| {
            // Its text has at most the value of an option, and the password is free in its form.
            Error::config(
                ConfigIssue::Url,
                format!("the address can't be read ({error}): {}", url::FORM),
            )
        })?;
        let mut driver =
            PostgresDriver { pooler, advisory, listen, ..PostgresDriver::new(options) };
        let uses_tls = tls.checked(&driver.host(), ["sslmode", "disable", "verify-full"])?;
        if !uses_tls {
            driver.options = driver.options.ssl_mode(PgSslMode::Disable);
        }
        let store = driver.store();
        Self::take(&mut url, driver, store)
    }

    /// Uses the application's pool. Each statement takes a connection out of it and gives it back
    /// at once, so a pool of one will do. Renewals and listening have connections of their own,
    /// made with the pool's options, so that an exhausted pool can't cost a lock.
    ///
    /// Statements run under the settings of the pool's connections. They name the tables with the
    /// schema in which they were found at first, so a `search_path` that somebody leaves behind does
    /// not lead elsewhere. A connection whose role, `synchronous_commit` or `client_encoding` is not
    /// what it was at first, or that was left in a transaction, is closed.
    ///
    /// # Errors
    /// None so far.
    pub fn from_pool(pool: PgPool) -> Result<Self, Error> {
        let options = PgConnectOptions::clone(&pool.connect_options());
        let driver = PostgresDriver { pool: Some(pool), ..PostgresDriver::new(options) };
        let mut url: BackendUrl = "postgres:".parse()?;
        let store = driver.store();
        Self::take(&mut url, driver, store)
    }

    /// Whether a pooler such as PgBouncer in transaction mode stands before the server. Then no
    /// statement is prepared, no setting is made, and nobody listens: waiters look instead. Give the
    /// user a `statement_timeout` (`ALTER ROLE`) of half the response time-out, which dlock sets
    /// otherwise: so no statement takes effect that nobody waits for any more. Off by default.
    #[must_use]
    pub fn with_pooler(mut self, pooler: bool) -> Self {
        self.driver.pooler = pooler;
        self
    }

    /// Locks of a session, for the mutex only: the server frees them when it notices that the
    /// connection is gone. See the crate's documentation. Off by default.
    #[must_use]
    pub fn with_advisory(mut self, advisory: bool) -> Self {
        self.driver.advisory = advisory;
        self
    }

    /// Whether a connection listens for notes of grants. On by default, unless there is a pooler.
    /// When the notes do not get through, which is tried at the start, waiters look instead.
    #[must_use]
    pub fn with_listen(mut self, listen: bool) -> Self {
        self.driver.listen = Some(listen);
        self
    }
}

#[cfg(test)]
mod tests {
    use dlock_core::ErrorKind;

    use super::*;
    use crate::postgres::statement::Travel;

    fn read(url: &str) -> Result<PostgresConfig, Error> {
        PostgresConfig::from_url(&url.parse().unwrap())
    }

    #[test]
    fn the_store_is_named_without_secrets() {
        for (url, store) in [
            ("postgres://u:hunter2@localhost/d", "postgres://localhost:5432/d"),
            ("postgresql://u:hunter2@127.0.0.1:7/d", "postgres://127.0.0.1:7/d"),
            ("postgres://u@localhost:7", "postgres://localhost:7/u"),
            ("postgres://db/d?sslmode=disable&user=u&password=hunter2", "postgres://db:5432/d"),
            ("postgres:///d?user=u&host=/run/pg&port=7", "postgres:///run/pg:7/d"),
        ] {
            let config = read(url).unwrap();
            assert_eq!(config.store, store, "{url}");
            assert!(!format!("{config:?}").contains("hunter2"), "{config:?}");
        }
    }

    #[test]
    fn our_options_are_read() {
        let config = read("postgres://localhost/d").unwrap();
        assert!(config.listens() && config.travel() == Travel::Prepared);
        let config = read("postgres://localhost/d?dlock.listen=false").unwrap();
        assert!(!config.listens());
        let config = read("postgres://localhost/d?dlock.pooler=true").unwrap();
        assert!(!config.listens() && config.travel() == Travel::Text);
        assert!(config.with_listen(true).listens());
    }

    #[test]
    fn a_wrong_url_is_refused_with_a_remedy_and_no_password() {
        for (url, issue, says) in [
            ("postgres://u:hunter2@db/d", ConfigIssue::OptionValue, "sslmode=verify-full"),
            ("postgres://u:hunter2@h:port/d", ConfigIssue::Url, "host:5432"),
            ("postgres://u:hunter2@h:70000/d", ConfigIssue::Url, "host:5432"),
            ("postgres://u:%FF@localhost/d", ConfigIssue::Url, "percent-encoded"),
            ("postgres://localhost/d?port=x&password=hunter2", ConfigIssue::Url, "invalid digit"),
            ("postgres://localhost/d?dlock.pooler=1", ConfigIssue::OptionValue, "true or false"),
            ("postgres://localhost/d?dlock.connections=0", ConfigIssue::OptionValue, "1 to 16"),
        ] {
            let error = read(url).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config(issue), "{url}");
            assert!(error.to_string().contains(says), "{url}: {error}");
            assert!(!format!("{error} {error:?}").contains("hunter2"), "{error:?}");
        }
        let relaxed = read("postgres://localhost/d?dlock.durability=relaxed&dlock.pooler=true");
        let error = relaxed.unwrap().checked_durability().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config(ConfigIssue::OptionValue));
        assert!(error.to_string().contains("ALTER ROLE"), "{error}");
    }

    #[test]
    fn tls_needs_its_feature() {
        let error = read("postgres://db/d?sslmode=verify-full").err();
        assert_eq!(error.is_none(), cfg!(feature = "tls"), "{error:?}");
    }
}
