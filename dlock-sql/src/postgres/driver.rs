//! The driver's part of a configuration: the source of connections, and their settings.
//!
//! `sets_later` goes from false to true once, and all clones of a configuration share it. It is
//! relaxed: a task that reads the old value is refused once more, and its retry reads the new one.

use std::{
    fmt::Write as _,
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use dlock_core::Error;
use sqlx::{
    ConnectOptions as _, PgPool,
    postgres::{PgConnectOptions, PgSslMode},
};

use super::{
    error::{classify, refuses_options},
    queries,
    statement::{OWN_PATH, Transport, millis},
};
use crate::{
    engine::Fault,
    server::{Durability, ServerConfig, Target, bare, reach, shown, value},
};

/// The configuration of a [`Postgres`](super::Postgres) store.
///
/// ```
/// use dlock_sql::PostgresConfig;
/// let url = "postgres://app:secret@localhost/locks";
/// let config = PostgresConfig::from_url(&url.parse()?)?.with_create_schema(true);
/// # Ok::<(), dlock_core::Error>(())
/// ```
pub type PostgresConfig = ServerConfig<PostgresDriver>;

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
    /// Whether the server refuses settings during a connect.
    pub(super) sets_later: Arc<AtomicBool>,
}

impl PostgresDriver {
    pub(super) fn new(options: PgConnectOptions) -> Self {
        let sets_later = Arc::default();
        let host = bare(options.get_host()).to_owned();
        let options = options.host(&host);
        Self { options, pool: None, pooler: false, advisory: false, sets_later }
    }

    pub(super) fn host(&self) -> String {
        match self.options.get_socket() {
            Some(path) => path.display().to_string(),
            None => self.options.get_host().to_owned(),
        }
    }

    /// Returns the name of the store, without secrets. Without a database in the URL, that of the
    /// user's name is used. It is not shown, because it stands before the `@` of the URL, where a
    /// malformed URL may have a part of the password.
    pub(super) fn store(&self) -> String {
        let database = self.database().map(|name| format!("/{name}"));
        let (host, database) = (self.host(), database.unwrap_or_default());
        format!("postgres://{}:{}{database}", shown(&host), self.options.get_port())
    }

    /// Returns the name of the store after the server has accepted the login. The user is no secret
    /// then, so the name always has the database.
    pub(super) fn opened_store(&self) -> String {
        match self.database() {
            Some(_) => self.store(),
            None => format!("{}/{}", self.store(), self.options.get_username()),
        }
    }

    /// Returns the database of the URL or of the environment. To the server, an empty one is none.
    fn database(&self) -> Option<&str> {
        self.options.get_database().filter(|name| !name.is_empty())
    }
}

impl PostgresConfig {
    pub(super) fn listens(&self) -> bool {
        !self.driver.pooler
    }

    pub(super) fn transport(&self) -> Transport {
        if self.driver.pooler { Transport::Text } else { Transport::Prepared }
    }

    /// # Errors
    /// `Config(OptionValue)` if the durability is not available.
    pub(super) fn checked_durability(self) -> Result<Self, Error> {
        let settings = !self.driver.pooler && self.driver.pool.is_none();
        if self.durability == Durability::Full || settings {
            return Ok(self);
        }
        Err(value(
            "dlock.durability=relaxed can't be set on the connections of a pool or a pooler: set \
             synchronous_commit = off for the user instead (ALTER ROLE)",
        ))
    }

    /// Opens a dedicated connection. `ready` gets the options, and sends the
    /// [greeting](Self::greeting). The caller bounds the time by `limit`.
    ///
    /// AWS RDS Proxy refuses settings during a connect. It accepts them later, and then does not
    /// share the session. For a pooler that shares sessions, the URL needs `dlock.pooler=true`.
    pub(super) async fn connect<C, F>(
        &self,
        limit: Duration,
        ready: impl Fn(PgConnectOptions) -> F + Sync,
    ) -> Result<C, Fault>
    where
        F: Future<Output = Result<C, Fault>> + Send,
    {
        match reach(&self.session(), limit, classify, &ready).await {
            Err(fault) if refuses_options(&fault.error) && self.sets_as_it_connects() => {
                self.driver.sets_later.store(true, Ordering::Relaxed);
                reach(&self.session(), limit, classify, &ready).await
            }
            reached => reached,
        }
    }

    fn sets_as_it_connects(&self) -> bool {
        !self.driver.pooler && !self.driver.sets_later.load(Ordering::Relaxed)
    }

    /// Returns the driver's options for a dedicated connection.
    pub(super) fn session(&self) -> PgConnectOptions {
        let options = match &self.driver.pool {
            // The application may have changed them since, for example the password.
            Some(pool) => PgConnectOptions::clone(&pool.connect_options()),
            None => self.driver.options.clone(),
        };
        let mut options = options.disable_statement_logging();
        if options.get_application_name().is_none() {
            options = options.application_name("dlock");
        }
        if self.driver.pooler {
            // A pooler refuses settings that it can't keep separate for each client.
            return options.extra_float_digits(None);
        }
        match self.sets_as_it_connects() {
            true => options.options(self.of_session()),
            false => options,
        }
    }

    /// Returns the first text on a dedicated connection: the settings that it still needs, and a
    /// query that checks them. With `names_schemas`, later statements need no search path.
    pub(super) fn greeting(&self, names_schemas: bool) -> String {
        if self.driver.pooler {
            return queries::GREETING_OF_POOLER.to_owned();
        }
        let mut text = if names_schemas { format!("{OWN_PATH}; ") } else { String::new() };
        if !self.sets_as_it_connects() {
            for (name, value) in self.of_session() {
                // Writing to a String does not fail.
                let _ = write!(text, "SET {name} = '{value}'; ");
            }
        }
        let [lock, statement] = self.limits();
        text + &queries::GREETING.replace("{lock}", &lock).replace("{statement}", &statement)
    }

    /// Returns how long a statement waits for a row, and how long it may take. It ends on the
    /// server before this client stops waiting, so that no statement takes effect after that.
    fn limits(&self) -> [String; 2] {
        [millis(self.response_timeout / 10), millis(self.response_timeout / 3)]
    }

    fn of_session(&self) -> Vec<(&'static str, String)> {
        let [lock, statement] = self.limits();
        let mut settings = vec![
            ("default_transaction_isolation", "read committed".to_owned()),
            // So that the server soon notices a partitioned client.
            ("tcp_keepalives_idle", "10".to_owned()),
            ("tcp_keepalives_interval", "5".to_owned()),
            ("tcp_keepalives_count", "3".to_owned()),
            ("lock_timeout", lock),
            ("statement_timeout", statement),
        ];
        if self.durability == Durability::Relaxed {
            settings.push(("synchronous_commit", "off".to_owned()));
        }
        settings
    }
}

impl Target for PgConnectOptions {
    fn host_and_port(&self) -> Option<(&str, u16)> {
        let is_socket = self.get_socket().is_some() || self.get_host().starts_with('/');
        (!is_socket).then(|| (self.get_host(), self.get_port()))
    }

    fn is_encrypted(&self) -> bool {
        !matches!(self.get_ssl_mode(), PgSslMode::Disable | PgSslMode::Allow)
    }

    fn at(self, address: IpAddr) -> Self {
        self.host(&address.to_string())
    }

    fn through(self, socket: &str) -> (Self, String) {
        let path = format!("{socket}/.s.PGSQL.{}", self.get_port());
        (self.socket(socket), path)
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
        let later = read("postgres://localhost/d?dlock.response_timeout=6s").unwrap();
        assert!(later.greeting(false).starts_with("SELECT"), "{}", later.greeting(false));
        assert!(later.greeting(true).starts_with("SET search_path"), "{}", later.greeting(true));
        later.driver.sets_later.store(true, Ordering::Relaxed);
        assert_eq!(later.session().get_options(), None);
        let greeting = later.greeting(false);
        assert!(greeting.starts_with("SET default_transaction"), "{greeting}");
        let named = read("postgres://localhost/d?application_name=a").unwrap().session();
        assert_eq!(named.get_application_name(), Some("a"));
    }
}
