//! The checks of a URL before the driver reads it.

use std::collections::HashSet;

use dlock_core::{BackendUrl, ConfigIssue, Error};

use crate::server::{Tls, value};

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
pub(super) fn check(url: &BackendUrl) -> Result<Tls, Error> {
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
                format!("the option {shown:.80} stands twice in the URL: write it once"),
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

    fn check(url: &str) -> Result<Tls, Error> {
        super::check(&url.parse()?)
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
                "once",
            ),
        ] {
            let error = check(url).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config(issue), "{url}");
            assert!(error.to_string().contains(says), "{url}: {error}");
            assert!(!error.to_string().contains("34"), "{error}");
        }
    }
}
