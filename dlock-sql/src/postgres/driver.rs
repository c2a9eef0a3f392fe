//! The driver's part of a configuration: where connections come from, and how they are set up.

use std::sync::Arc;

use dlock_core::{ConfigIssue, Error};
use sqlx::{ConnectOptions as _, PgPool, postgres::PgConnectOptions};

use super::{
    PostgresConfig,
    link::Source,
    statement::{Travel, millis},
};
use crate::server::Durability;

/// The driver's part of a [`PostgresConfig`].
// The driver's options print the password.
#[expect(unnameable_types, reason = "the alias is all that anybody names")]
#[expect(missing_debug_implementations, reason = "what holds it prints itself")]
#[derive(Clone)]
pub struct PostgresDriver {
    pub(super) options: PgConnectOptions,
    pub(super) pool: Option<PgPool>,
    pub(super) pooler: bool,
    pub(super) advisory: bool,
    pub(super) listen: Option<bool>,
}

impl PostgresDriver {
    pub(super) fn new(options: PgConnectOptions) -> Self {
        Self { options, pool: None, pooler: false, advisory: false, listen: None }
    }

    pub(super) fn host(&self) -> String {
        match self.options.get_socket() {
            Some(path) => path.display().to_string(),
            None => self.options.get_host().to_owned(),
        }
    }

    /// The name of the store, without secrets.
    pub(super) fn store(&self) -> String {
        let database = self.options.get_database().unwrap_or(self.options.get_username());
        format!("postgres://{}:{}/{database}", self.host(), self.options.get_port())
    }
}

impl PostgresConfig {
    pub(super) fn listens(&self) -> bool {
        self.driver.listen.unwrap_or(!self.driver.pooler)
    }

    pub(super) fn travel(&self) -> Travel {
        if self.driver.pooler { Travel::Text } else { Travel::Prepared }
    }

    /// Where connections come from that are dlock's own.
    pub(super) fn own(&self) -> Source {
        match &self.driver.pool {
            Some(_) => Source::Beside(Box::new(self.clone())),
            None => Source::Own(Arc::new(self.session())),
        }
    }

    /// Where other connections come from.
    pub(super) fn shared(&self) -> Source {
        match &self.driver.pool {
            Some(pool) => Source::Pool(pool.clone()),
            None => self.own(),
        }
    }

    /// # Errors
    /// `Config(OptionValue)` when the durability can't be had.
    pub(super) fn checked_durability(self) -> Result<Self, Error> {
        let settings = !self.driver.pooler && self.driver.pool.is_none();
        if self.durability == Durability::Full || settings {
            return Ok(self);
        }
        Err(Error::config(
            ConfigIssue::OptionValue,
            "dlock.durability=relaxed can't be set on the connections of a pool or a pooler: set \
             synchronous_commit = off for the user instead (ALTER ROLE)",
        ))
    }

    /// The driver's options for a connection of our own.
    pub(super) fn session(&self) -> PgConnectOptions {
        match &self.driver.pool {
            // The application may have changed them since: passwords do not last for ever.
            Some(pool) => self.session_with(PgConnectOptions::clone(&pool.connect_options())),
            None => self.session_with(self.driver.options.clone()),
        }
    }

    fn session_with(&self, options: PgConnectOptions) -> PgConnectOptions {
        let mut options = options.disable_statement_logging();
        if options.get_application_name().is_none() {
            options = options.application_name("dlock");
        }
        if self.driver.pooler {
            // It refuses settings that it can't keep apart.
            return options.extra_float_digits(None);
        }
        // Statements end on the server before their answer is given up here, so that none takes
        // effect that nobody waits for any more.
        options = options.options([
            ("default_transaction_isolation", "read committed"),
            // The server notices soon that a client is cut off.
            ("tcp_keepalives_idle", "10"),
            ("tcp_keepalives_interval", "5"),
            ("tcp_keepalives_count", "3"),
            ("lock_timeout", &millis(self.patience / 10)),
            ("statement_timeout", &millis(self.patience / 3)),
        ]);
        match self.durability {
            Durability::Full => options,
            Durability::Relaxed => options.options([("synchronous_commit", "off")]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(url: &str) -> Result<PostgresConfig, Error> {
        PostgresConfig::from_url(&url.parse().unwrap())
    }

    #[test]
    fn a_session_has_its_settings_unless_there_is_a_pooler() {
        let settings = |url: &str| {
            let session = read(url).unwrap().session();
            assert_eq!(session.get_application_name(), Some("dlock"));
            session.get_options().unwrap_or_default().to_owned()
        };
        let all = settings("postgres://localhost/d?dlock.response_timeout=6s");
        for setting in [
            r"-c default_transaction_isolation=read\ committed",
            "-c lock_timeout=600",
            "-c statement_timeout=2000",
        ] {
            assert!(all.contains(setting), "{all}");
        }
        assert!(!all.contains("synchronous_commit"), "{all}");
        let all =
            settings("postgres://localhost/d?dlock.durability=relaxed&options[search_path]=a");
        assert!(all.contains("synchronous_commit=off"), "{all}");
        assert!(all.contains("search_path=a"), "{all}");
        assert_eq!(settings("postgres://localhost/d?dlock.pooler=true"), "");
        let named = read("postgres://localhost/d?application_name=a").unwrap().session();
        assert_eq!(named.get_application_name(), Some("a"));
    }
}
