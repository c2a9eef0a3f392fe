//! The checks of the parts of a URL that the driver would misread without an error.

use dlock_core::{BackendUrl, ConfigIssue, Error};
use sqlx::mysql::{MySqlConnectOptions, MySqlSslMode};

use crate::server::{Tls, bare, shown, value};

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
                format!("the option {name} stands twice in the URL: write it once"),
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
