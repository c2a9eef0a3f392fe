//! The configuration of a PostgreSQL store.

use std::{collections::HashSet, str::FromStr as _};

use dlock_core::{BackendUrl, ConfigIssue, Error};
use sqlx::{
    PgPool,
    postgres::{PgConnectOptions, PgSslMode},
};

use super::{
    driver::{PostgresConfig, PostgresDriver},
    queries,
};
use crate::server::{Tls, value};

impl PostgresConfig {
    /// The statements that create dlock's tables, to run them by hand: `schema.sql` of this crate,
    /// which also lists the rights that users of the locks need. Running them again changes
    /// nothing.
    pub const SCHEMA: &'static str = queries::SCHEMA;

    /// The statement that creates the table of the plain mode: `postgres/plain.sql` of this crate.
    pub const PLAIN_SCHEMA: &'static str = queries::PLAIN_SCHEMA;

    /// The statement that creates the table of the advisory mode: `postgres/advisory/schema.sql` of
    /// this crate.
    pub const ADVISORY_SCHEMA: &'static str = queries::ADVISORY_SCHEMA;

    /// Reads `postgres://user:password@host:port/database?sslmode=verify-full`. Omitted parts are
    /// taken from the environment, as other clients of PostgreSQL do (`PGHOST`, `PGPASSWORD`,
    /// `~/.pgpass` and so on), except the TLS mode.
    ///
    /// The driver's options are `sslmode`, `sslrootcert`, `sslcert`, `sslkey`, `application_name`,
    /// `host` (also the directory of a socket), `hostaddr`, `port`, `user`, `password`, `dbname`,
    /// `options` and `options[NAME]`, such as `options[search_path]`. A server on another machine
    /// needs an `sslmode`: `disable`, `require`, `verify-ca` or `verify-full`.
    ///
    /// # Errors
    /// `Config`: `Url`, `OptionValue`, `RepeatedOption`, `UnknownOption` for an option of another
    /// driver, or `MissingFeature`.
    pub fn from_url(url: &BackendUrl) -> Result<Self, Error> {
        let mut url = url.clone();
        let tls = check_url(&url)?;
        let pooler = url.take_bool("pooler")?.unwrap_or(false);
        let advisory = url.take_bool("advisory")?.unwrap_or(false);
        let options = PgConnectOptions::from_str(&for_driver(&url)).map_err(|error| {
            // The text contains at most the value of an option, and a password may have any form.
            Error::config(
                ConfigIssue::Url,
                format!("the address can't be read ({error}): {}; {}", FORM, BackendUrl::ENCODE),
            )
        })?;
        let mut driver = PostgresDriver { pooler, advisory, ..PostgresDriver::new(options) };
        let uses_tls = tls.checked(&driver.host(), ["sslmode", "disable", "verify-full"])?;
        if !uses_tls {
            driver.options = driver.options.ssl_mode(PgSslMode::Disable);
        }
        let store = driver.store();
        Self::take(&mut url, driver, store)
    }

    /// Uses the application's pool. Each statement takes a connection out of it and returns it at
    /// once, so a pool with one connection is enough. Renewals and the listener have their own
    /// connections, which use the pool's options. So an exhausted pool can't cause the loss of a
    /// lock. While the server accepts no other connection, renewals use the pool, except in the
    /// plain and advisory modes.
    ///
    /// If the pool is closed, dlock continues on connections of its own, so that its locks can be
    /// renewed and released.
    ///
    /// Statements run under the settings of the pool's connections. They name the tables with the
    /// schema in which dlock found them at first, so a `search_path` of another part of the
    /// application has no effect on them. A connection is closed if its role, `synchronous_commit`
    /// or `client_encoding` is not the same as at first, or if it has an open transaction.
    ///
    /// # Errors
    /// None at present.
    pub fn from_pool(pool: PgPool) -> Result<Self, Error> {
        let options = PgConnectOptions::clone(&pool.connect_options());
        let driver = PostgresDriver { pool: Some(pool), ..PostgresDriver::new(options) };
        let mut url: BackendUrl = "postgres:".parse()?;
        let store = driver.store();
        Self::take(&mut url, driver, store)
    }

    /// Sets whether a pooler such as PgBouncer in transaction mode is in front of the server. Then
    /// dlock prepares no statements, changes no settings and does not listen: waiters poll instead.
    /// Give the user a `statement_timeout` (`ALTER ROLE`) of half the response timeout, which dlock
    /// sets itself without a pooler. It prevents a statement from taking effect after dlock has
    /// stopped waiting for it. Off by default.
    #[must_use]
    pub fn with_pooler(mut self, pooler: bool) -> Self {
        self.driver.pooler = pooler;
        self
    }

    /// Uses the advisory locks of a session, for the mutex only: the server frees them when it
    /// notices that the connection is lost. See the crate's documentation. Off by default.
    #[must_use]
    pub fn with_advisory(mut self, advisory: bool) -> Self {
        self.driver.advisory = advisory;
        self
    }
}

/// The `dlock.*` options of a URL, those of every server included.
pub(super) const OPTIONS: &[&str] = &[
    "advisory",
    "connections",
    "create_schema",
    "durability",
    "plain",
    "pooler",
    "response_timeout",
    "retention",
];

/// The driver's options that a URL may have; `options[NAME]` is one more.
const KNOWN: [&str; 12] = [
    "application_name",
    "dbname",
    "host",
    "hostaddr",
    "options",
    "password",
    "port",
    "sslcert",
    "sslkey",
    "sslmode",
    "sslrootcert",
    "user",
];

/// The form that a URL must have.
pub(super) const FORM: &str = "write postgres://user:password@host:5432/database, or for a Unix \
                               socket postgres://user:password@/database?host=/run/postgresql";

/// Returns the URL in a form that the driver's parser accepts, which refuses a user without a host,
/// as in `postgres://user@/database?host=/run/postgresql`.
pub(super) fn for_driver(url: &BackendUrl) -> String {
    let text = url.for_driver();
    let moved = || {
        let (scheme, rest) = text.split_once("://")?;
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, behind) = rest.split_at(end);
        let (login, port) = authority.rsplit_once('@')?;
        let port = match port {
            "" => None,
            _ => Some(port.strip_prefix(':')?),
        };
        let (user, password) = match login.split_once(':') {
            Some((user, password)) => (user, Some(password)),
            None => (login, None),
        };
        let (path, query) = behind.split_once('?').unwrap_or((behind, ""));
        // In a query a plus sign is a space, and an ampersand ends the value.
        let option = |key: &str, value: &str| {
            format!("{key}={}&", value.replace('+', "%2B").replace('&', "%26"))
        };
        let options = [("user", Some(user)), ("password", password), ("port", port)];
        let options = options.map(|(key, value)| value.map(|value| option(key, value)));
        let options = options.into_iter().flatten().collect::<String>();
        let path = if path.is_empty() { "/" } else { path };
        Some(format!("{scheme}://{path}?{options}{query}"))
    };
    moved().unwrap_or_else(|| text.clone())
}

/// Refuses parts that the driver would misread or ignore. Returns the TLS choice.
pub(super) fn check_url(url: &BackendUrl) -> Result<Tls, Error> {
    let form = |what: &str| {
        Error::config(ConfigIssue::Url, format!("{what}: {FORM}; {}", BackendUrl::ENCODE))
    };
    let Some(address) = url.address().strip_prefix("//") else {
        return Err(form("a postgres: URL names no server"));
    };
    let behind = address.find(['/', '?', '#']).map_or("", |end| &address[end..]);
    // Here it is part of a password, which must not appear in an error as part of something else.
    if behind.contains(['@', '#']) {
        return Err(form("a postgres: URL can't be parsed"));
    }
    let database = behind.split('?').next().unwrap_or_default();
    if BackendUrl::decoded(database).map_err(form)?.contains('@') {
        return Err(form("an @ follows the first / (an option dbname may have one)"));
    }
    let (mut tls, mut seen) = (Tls::Open, HashSet::new());
    let query = behind.split_once('?').map_or("", |(_, query)| query);
    for option in query.split('&').filter(|option| !option.is_empty()) {
        let (key, value) = option.split_once('=').unwrap_or((option, ""));
        let shown = url.shown_option(key);
        let is_setting = key.starts_with("options[") && key.ends_with(']');
        if !is_setting && !KNOWN.contains(&key) {
            return Err(Error::config(
                ConfigIssue::UnknownOption,
                format!(
                    "postgres: has no option {shown:.80}; use one of {}, options[NAME], or dlock's \
                     own: dlock.{}",
                    KNOWN.join(", "),
                    OPTIONS.join(", dlock.")
                ),
            ));
        }
        if !seen.insert(key) {
            return Err(Error::config(
                ConfigIssue::RepeatedOption,
                format!("the option {shown:.80} is given twice in the URL: write it once"),
            ));
        }
        if key == "sslmode" {
            tls = mode(value)?;
        }
    }
    Ok(tls)
}

fn mode(mode: &str) -> Result<Tls, Error> {
    match mode {
        "disable" => Ok(Tls::Off),
        "require" | "verify-ca" | "verify-full" => Ok(Tls::On),
        "allow" | "prefer" => Err(value(format!(
            "sslmode={mode} lets the server decide whether the connection is encrypted: \
             write verify-full, verify-ca or require, or disable for clear text"
        ))),
        _ => Err(value("sslmode can't be read: write disable, require, verify-ca or verify-full")),
    }
}

#[cfg(test)]
mod tests {
    use dlock_core::ErrorKind;

    use super::*;
    use crate::postgres::statement::Transport;

    fn read(url: &str) -> Result<PostgresConfig, Error> {
        PostgresConfig::from_url(&url.parse().unwrap())
    }

    #[test]
    fn the_store_is_named_without_secrets() {
        for (url, store) in [
            ("postgres://u:hunter2@localhost/d", "postgres://localhost:5432/d"),
            ("postgresql://u:hunter2@127.0.0.1:7/d", "postgres://127.0.0.1:7/d"),
            ("postgres://u:hunter2@[::1]:7/d", "postgres://[::1]:7/d"),
            ("postgres://u:hunter2@/d?host=::1", "postgres://[::1]:5432/d"),
            ("postgres://u:hunter2@/d?host=/run/pg", "postgres:///run/pg:5432/d"),
            ("postgres://u@:7/d?host=/run/pg", "postgres:///run/pg:7/d"),
            ("postgres://u@?host=/run/pg&dlock.pooler=true", "postgres:///run/pg:5432"),
            ("postgres://u@%2Frun%2Fpg/d", "postgres:///run/pg:5432/d"),
            ("postgres://u@localhost:7", "postgres://localhost:7"),
            ("postgres://u@localhost:7/?dbname=", "postgres://localhost:7"),
            ("postgres://db/d?sslmode=disable&user=u&password=hunter2", "postgres://db:5432/d"),
            ("postgres:///d?user=u&host=/run/pg&port=7", "postgres:///run/pg:7/d"),
        ] {
            let config = read(url).unwrap();
            assert_eq!(config.store, store, "{url}");
            assert!(!format!("{config:?}").contains("hunter2"), "{config:?}");
        }
    }

    #[test]
    fn the_driver_gets_an_ipv6_address_without_brackets() {
        for url in ["postgres://[::1]/d", "postgres://u@[::1]:7/d", "postgres:///d?hostaddr=::1"] {
            let session = read(url).unwrap().session();
            assert_eq!(session.get_host(), "::1", "{url}");
        }
    }

    #[test]
    fn a_user_without_a_host_keeps_the_special_characters() {
        for url in [
            "postgres://a%40b+c:x%2By+z@/d?host=/r",
            "postgres://a%40b+c:x%2By+z@h/d?sslmode=disable",
        ] {
            let options = read(url).unwrap().driver.options;
            assert_eq!(options.get_username(), "a@b+c", "{url}");
            assert!(format!("{options:?}").contains("\"x+y+z\""), "{options:?}");
        }
    }

    #[test]
    fn our_options_are_read() {
        let config = read("postgres://localhost/d").unwrap();
        assert!(config.listens() && config.transport() == Transport::Prepared);
        let config = read("postgres://localhost/d?dlock.pooler=true").unwrap();
        assert!(!config.listens() && config.transport() == Transport::Text);
    }

    #[test]
    fn a_wrong_url_is_refused_with_a_remedy_and_no_password() {
        for (url, issue, says) in [
            ("postgres://u:hunter2@db/d", ConfigIssue::OptionValue, "sslmode=verify-full"),
            ("postgres://u:hunter2@h:port/d", ConfigIssue::Url, "host:5432"),
            ("postgres://u:hunter2@:port/d", ConfigIssue::Url, "host=/run/postgresql"),
            ("postgres://u:hunter2@h:70000/d", ConfigIssue::Url, "host:5432"),
            ("postgres://u:%FF@localhost/d", ConfigIssue::Url, "percent-encode /"),
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

    fn check(url: &str) -> Result<Tls, Error> {
        check_url(&url.parse()?)
    }

    #[test]
    fn the_choice_of_tls_is_read() {
        for (url, tls) in [
            ("postgres://h/d", Tls::Open),
            ("postgres:///d?host=/run/postgresql", Tls::Open),
            ("postgres://h/d?sslmode=disable", Tls::Off),
            ("postgresql://u:p@h:5/d?application_name=a&sslmode=require", Tls::On),
            ("postgres://h?options[search_path]=s&sslmode=verify-ca&options=-c%20a=b", Tls::On),
            ("postgres://h/d?sslmode=verify-full&sslrootcert=/a%20b", Tls::On),
        ] {
            assert_eq!(check(url).unwrap(), tls, "{url}");
        }
    }

    #[test]
    fn an_ambiguous_url_is_refused_with_a_remedy() {
        for (url, issue, says) in [
            ("postgres:h/d", ConfigIssue::Url, "postgres://user:password@host:5432"),
            ("postgres:", ConfigIssue::Url, "names no server"),
            ("postgres://u:12#34@h/d", ConfigIssue::Url, "# as %23"),
            ("postgres://u:12/34@h/d", ConfigIssue::Url, "/ as %2F"),
            ("postgres://u:12?34=5@h/d", ConfigIssue::Url, "? as %3F"),
            ("postgres://h/d?sslmode=prefer", ConfigIssue::OptionValue, "verify-full"),
            ("postgres://h/d?sslmode=allow", ConfigIssue::OptionValue, "disable for clear text"),
            ("postgres://h/d?sslmode=yes", ConfigIssue::OptionValue, "verify-ca or verify-full"),
            ("postgres://u:?34&dlock.a=@h/d", ConfigIssue::Url, "? as %3F"),
            ("postgres://h/d?ssl-mode=disable", ConfigIssue::UnknownOption, "sslmode"),
            ("postgres://h/d?ssl%6Dode=disable", ConfigIssue::UnknownOption, "sslmode"),
            (
                "postgres://h/d?connect_timeout=3",
                ConfigIssue::UnknownOption,
                "dlock.response_timeout",
            ),
            (
                "postgres://h/d?sslmode=verify-full&sslmode=disable",
                ConfigIssue::RepeatedOption,
                "is given twice in the URL",
            ),
        ] {
            let error = check(url).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config(issue), "{url}");
            assert!(error.to_string().contains(says), "{url}: {error}");
            assert!(!error.to_string().contains("34"), "{error}");
        }
    }
}
