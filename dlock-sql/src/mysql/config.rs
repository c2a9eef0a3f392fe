//! The configuration of a MySQL or MariaDB store.

use std::fmt;

use dlock_core::{BackendUrl, ConfigIssue, Error};
use sqlx::{
    ConnectOptions as _, MySqlPool,
    mysql::{MySqlConnectOptions, MySqlSslMode},
};

use super::{connector::Source, error::classify};
use crate::server::{Durability, ServerConfig, Tls, bare, shown, value};

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
        let chosen = options_of(&url)?;
        let options: MySqlConnectOptions =
            for_driver(&url).parse().map_err(|error| unreadable(classify(error).error))?;
        let (options, store) = chosen.apply(options)?;
        let options = options.disable_statement_logging();
        let driver = MysqlDriver { options, pool: None, returning: None };
        Self::take(&mut url, driver, store)?.supported()
    }

    /// Uses the application's pool. Each statement takes a connection out of it and returns it at
    /// once, so a pool with one connection is enough. Renewals, and the whole plain mode, have
    /// their own connections, which use the pool's options. So an exhausted pool can't cause the
    /// loss of a lock. While the server accepts no other connection, renewals use the pool, except
    /// in the plain mode.
    ///
    /// If the pool is closed, dlock continues on connections of its own, so that its locks can be
    /// renewed and released.
    ///
    /// Statements run under the settings of the pool's connections, which must have `autocommit`
    /// and a strict `sql_mode`, as they have by default. dlock checks this before each statement. A
    /// connection with other settings, with another role, or with an open transaction is closed.
    /// Statements name the tables with the database of the pool's options, so a `USE` of another
    /// part of the application has no effect on them. If dlock stops waiting for a statement, the
    /// server continues it for at most the connection's `innodb_lock_wait_timeout`.
    ///
    /// # Errors
    /// `Config(Url)` for a pool whose options name no database.
    pub fn from_pool(pool: MySqlPool) -> Result<Self, Error> {
        let options = MySqlConnectOptions::clone(&pool.connect_options());
        let store = store(&options)?;
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

/// The driver's options. The names in one row mean the same option.
const KNOWN: [&[&str]; 8] = [
    &["ssl-mode", "sslmode"],
    &["ssl-ca", "sslca"],
    &["ssl-cert", "sslcert"],
    &["ssl-key", "sslkey"],
    &["socket"],
    &["charset"],
    &["collation"],
    &["timezone", "time-zone"],
];

/// The name of the option for TLS, and two of its values.
const TLS: [&str; 3] = ["ssl-mode", "DISABLED", "VERIFY_IDENTITY"];

/// The settings that a URL gives to the driver.
#[derive(Debug)]
pub(super) struct Chosen {
    tls: Tls,
    /// The known options in the URL.
    given: Vec<&'static str>,
}

/// Reads the options of `//user:password@host:port/database?option=value&...`.
///
/// A password that is not encoded may be in any place of these. So errors show a part only if it
/// can't contain one.
pub(super) fn options_of(url: &BackendUrl) -> Result<Chosen, Error> {
    let address = url.address();
    if address.contains('#') {
        // The driver would ignore the text behind it, including options about TLS.
        return Err(malformed("the URL has a #, which must be written as %23"));
    }
    let (path, query) = address.split_once('?').unwrap_or((address, ""));
    let authority = path.strip_prefix("//").and_then(|path| path.split('/').next());
    let user = authority.and_then(|authority| authority.rsplit_once('@')).map(|(user, _)| user);
    if user.is_none_or(|user| user.is_empty() || user.starts_with(':')) || query.contains('@') {
        return Err(malformed("the URL has no user before the @"));
    }
    let behind = path.strip_prefix("//").and_then(|path| path.split_once('/'));
    let database = behind.map(|(_, database)| BackendUrl::decoded(database));
    let database = database.transpose().map_err(malformed)?;
    if database.is_some_and(|database| database.contains('@')) {
        // Here it ends a password, which must not become part of the database's name.
        return Err(malformed(
            "an @ follows the first /, and the name of a database can't have one",
        ));
    }
    let mut chosen = Chosen { tls: Tls::Open, given: Vec::new() };
    for option in query.split('&').filter(|option| !option.is_empty()) {
        let (key, text) = option.split_once('=').unwrap_or((option, ""));
        let known = KNOWN.iter().find(|names| names.contains(&key));
        let name = known.ok_or_else(|| unknown(url.shown_option(key)))?[0];
        if chosen.given.contains(&name) {
            return Err(Error::config(
                ConfigIssue::RepeatedOption,
                format!("the option {name} is given twice in the URL: write it once"),
            ));
        }
        chosen.given.push(name);
        if name == TLS[0] {
            chosen.tls = tls(text)?;
        }
    }
    Ok(chosen)
}

/// Returns the URL in a form that the driver's parser accepts, which refuses a user without a host,
/// as in `mysql://user@/database?socket=/run/mysqld/mysqld.sock`.
pub(super) fn for_driver(url: &BackendUrl) -> String {
    let text = url.for_driver();
    let Some((scheme, rest)) = text.split_once("://") else { return text };
    let (authority, behind) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let has_socket = behind.split(['?', '&']).skip(1).any(|option| option.starts_with("socket="));
    match authority.strip_suffix('@') {
        // The driver ignores the host if there is a socket.
        Some(login) if has_socket => format!("{scheme}://{login}@localhost{behind}"),
        _ => text,
    }
}

impl Chosen {
    /// Completes the options that the driver has read. Also returns the store's name.
    pub(super) fn apply(
        self,
        mut options: MySqlConnectOptions,
    ) -> Result<(MySqlConnectOptions, String), Error> {
        let has = |name| self.given.contains(&name);
        let host = bare(options.get_host()).to_owned();
        options = options.host(&host);
        let store = store(&options)?;
        let socket = options.get_socket().map(|path| path.display().to_string());
        let host = socket.unwrap_or_else(|| options.get_host().to_owned());
        let encrypted = self.tls.checked(&host, TLS)?;
        if !encrypted {
            if let Some(name) =
                self.given.iter().find(|name| name.starts_with("ssl-") && **name != TLS[0])
            {
                return Err(value(format!(
                    "{name} has no effect without TLS: add ssl-mode={}, or remove it",
                    TLS[2]
                )));
            }
            options = options.ssl_mode(MySqlSslMode::Disabled);
        }
        // `session.sql` makes the settings that the statements need.
        options = options.pipes_as_concat(false).no_engine_substitution(false);
        if !has("timezone") {
            options = options.timezone(None);
        }
        Ok((options.set_names(has("charset") || has("collation")), store))
    }
}

/// Returns the name of the store, without secrets.
pub(super) fn store(options: &MySqlConnectOptions) -> Result<String, Error> {
    let Some(database) = options.get_database() else {
        return Err(malformed("the URL names no database"));
    };
    Ok(match options.get_socket() {
        Some(path) => format!("mysql:{}/{database}", path.display()),
        None => format!("mysql://{}:{}/{database}", shown(options.get_host()), options.get_port()),
    })
}

fn tls(mode: &str) -> Result<Tls, Error> {
    match &*mode.to_ascii_lowercase() {
        "disabled" => Ok(Tls::Off),
        "required" | "verify_ca" | "verify_identity" => Ok(Tls::On),
        _ => Err(value(format!(
            "ssl-mode={mode:.80} is not supported: write DISABLED, REQUIRED, VERIFY_CA or \
             VERIFY_IDENTITY; an attacker in between can prevent TLS that is only preferred"
        ))),
    }
}

fn unknown(key: &str) -> Error {
    let known: Vec<&str> = KNOWN.iter().map(|names| names[0]).collect();
    Error::config(
        ConfigIssue::UnknownOption,
        format!(
            "mysql: has no option {key:.80}; use one of {}, or dlock's own, which begin with \
             dlock.",
            known.join(", ")
        ),
    )
}

/// Returns the error of a URL that the driver can't read.
pub(super) fn unreadable(error: Error) -> Error {
    malformed("the URL can't be read").with_source(error)
}

fn malformed(what: &str) -> Error {
    Error::config(
        ConfigIssue::Url,
        format!(
            "{what}: write mysql://user:password@host:port/database, or for a Unix socket \
             mysql://user:password@/database?socket=/run/mysqld/mysqld.sock; {}",
            BackendUrl::ENCODE
        ),
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use dlock_core::{ConfigIssue, ErrorKind};

    use super::*;

    fn read(url: &str) -> Result<MysqlConfig, Error> {
        MysqlConfig::from_url(&url.parse()?)
    }

    #[test]
    fn a_url_names_the_store_without_secrets() {
        for (url, store) in [
            ("mysql://u:hunter2@localhost/locks", "mysql://localhost:3306/locks"),
            ("mariadb://u:hunter2@127.0.0.1:33/a%20b", "mysql://127.0.0.1:33/a b"),
            ("mysql://u@[::1]:33/locks", "mysql://[::1]:33/locks"),
            ("mysql://u:hunter2@db/locks?ssl-mode=DISABLED", "mysql://db:3306/locks"),
            ("mysql://u:hunter2@db/locks?sslmode=disabled&timezone=UTC", "mysql://db:3306/locks"),
            ("mysql://u@localhost/locks?socket=/run/s.sock", "mysql:/run/s.sock/locks"),
            ("mysql://u:hunter2@/locks?socket=/run/s.sock", "mysql:/run/s.sock/locks"),
        ] {
            let config = read(url).unwrap();
            assert_eq!(config.store, store);
            assert!(!format!("{config:?} {:?}", config.driver).contains("hunter2"));
        }
    }

    #[test]
    fn the_driver_gets_an_ipv6_address_without_brackets() {
        for url in ["mysql://u@[::1]/l", "mariadb://u:hunter2@[::1]:7/l"] {
            assert_eq!(read(url).unwrap().driver.options.get_host(), "::1", "{url}");
        }
    }

    #[test]
    fn our_options_are_taken() {
        let config = read(
            "mysql://u@localhost/l?dlock.create_schema=true&dlock.connections=3\
     &dlock.response_timeout=1s&dlock.retention=1h&dlock.durability=full",
        )
        .unwrap();
        assert!(config.create_schema);
        assert_eq!(config.connections, 3);
        assert_eq!(
            (config.response_timeout, config.retention),
            (Duration::from_secs(1), Duration::from_secs(3600))
        );
        assert_eq!(config.with_returning(false).driver.returning, Some(false));
    }

    #[test]
    fn an_unusable_url_is_refused_with_a_remedy() {
        use ConfigIssue::{OptionValue, RepeatedOption, UnknownOption, Url};

        for (url, issue, says) in [
            ("mysql://u@localhost", Url, "no database"),
            ("mysql://u@localhost/", Url, "/database"),
            ("mysql://u@/l", Url, "socket=/run/mysqld/mysqld.sock"),
            ("mysql://localhost/l", Url, "no user"),
            ("mysql://:hunter2@localhost/l", Url, "no user"),
            ("mysql://u:a@b/hunter2@localhost/l", Url, "follows the first /"),
            ("mysql://u:?hunter2&dlock.a=@localhost/l", Url, "? as %3F"),
            ("mysql:locks", Url, "mysql://user"),
            ("mysql://u:hunt/er2@localhost/l", Url, "percent-encode /"),
            ("mysql://u:hunt?er2@localhost/l", Url, "percent-encode /"),
            ("mysql://u:hunt#er2@localhost/l", Url, "percent-encode /"),
            ("mysql://u@db/l?ssl-ca=/a#b&ssl-mode=VERIFY_IDENTITY", Url, "%23"),
            ("mysql://u@db/l#?ssl-mode=VERIFY_CA", Url, "%23"),
            ("mysql://u:hunter2@localhost:x/l", Url, "host:port"),
            ("mysql://u:%ff@localhost/l", Url, "percent-encode /"),
            ("mysql://u:hunter2@db/l", OptionValue, "ssl-mode=VERIFY_IDENTITY"),
            ("mysql://u:hunter2@db/l?ssl-mode=PREFERRED", OptionValue, "VERIFY_IDENTITY"),
            ("mysql://u@db/l?ssl-mode=on", OptionValue, "VERIFY_IDENTITY"),
            ("mysql://u@localhost/l?ssl-ca=/ca", OptionValue, "ssl-ca"),
            (
                "mysql://u@localhost/l?ssl-mode=DISABLED&sslmode=DISABLED",
                RepeatedOption,
                "is given twice in the URL",
            ),
            ("mysql://u@localhost/l?usessl=false", UnknownOption, "usessl; use one of ssl-mode"),
            ("mysql://u@localhost/l?dlock.durability=relaxed", OptionValue, "trx_commit=2"),
            ("mysql://u@localhost/l?dlock.durability=some", OptionValue, "full or relaxed"),
            ("mysql://u@localhost/l?dlock.connections=0", OptionValue, "1 to 16"),
        ] {
            let error = read(url).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config(issue), "{url}: {error}");
            assert!(error.to_string().contains(says), "{url}: {error}");
            for secret in ["hunt", "er2"] {
                assert!(!format!("{error} {error:?}").contains(secret), "{url}: {error:?}");
            }
        }
    }

    #[test]
    fn tls_options_need_the_feature() {
        for mode in ["REQUIRED", "verify_ca", "VERIFY_IDENTITY&ssl-ca=/ca&ssl-cert=/c&ssl-key=/k"] {
            let read = read(&format!("mysql://u@db/l?ssl-mode={mode}"));
            assert_eq!(read.is_ok(), cfg!(feature = "tls"), "{read:?}");
            if let Err(error) = read {
                assert_eq!(error.kind(), ErrorKind::Config(ConfigIssue::MissingFeature));
            }
        }
    }
}
