//! The URL that chooses and configures a backend.

use std::{fmt, net::Ipv6Addr, str::FromStr, time::Duration};

use percent_encoding::percent_decode_str;

use crate::{ConfigIssue, Error};

/// A backend's URL: `scheme:address?option=value&...`.
///
/// Options whose names begin with `dlock.` are dlock's own: each may stand once, and one that
/// nobody takes is an error. All others stay in the address for the driver. It displays without
/// the password.
#[derive(Clone, PartialEq, Eq)]
pub struct BackendUrl {
    scheme: String,
    /// What stands behind `scheme:`, without dlock's options; it may hold a password.
    address: String,
    options: Vec<(String, String)>,
}

/// What dlock's own options begin with.
const OURS: &str = "dlock.";

impl BackendUrl {
    /// The scheme, in lower case.
    pub fn scheme(&self) -> &str {
        &self.scheme
    }

    /// What stands behind `scheme:`, without dlock's options. **It may hold a password.**
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The URL for the driver: without dlock's options. **It may hold a password.**
    pub fn for_driver(&self) -> String {
        format!("{}:{}", self.scheme, self.address)
    }

    /// Takes the option `dlock.NAME` out.
    pub fn take(&mut self, name: &str) -> Option<String> {
        let at = self.options.iter().position(|(key, _)| key == name)?;
        Some(self.options.remove(at).1)
    }

    /// Takes the option `dlock.NAME` out as a duration such as `500ms`, `30s` or `1h 30m`.
    ///
    /// # Errors
    /// `Config(OptionValue)`.
    pub fn take_duration(&mut self, name: &str) -> Result<Option<Duration>, Error> {
        self.take_parsed(name, "a duration such as 500ms, 30s or 5m", |text| {
            humantime::parse_duration(text).ok()
        })
    }

    /// Takes the option `dlock.NAME` out as `true` or `false`.
    ///
    /// # Errors
    /// `Config(OptionValue)`.
    pub fn take_bool(&mut self, name: &str) -> Result<Option<bool>, Error> {
        self.take_parsed(name, "true or false", |text| text.parse().ok())
    }

    fn take_parsed<T>(
        &mut self,
        name: &str,
        expected: &str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Result<Option<T>, Error> {
        let Some(text) = self.take(name) else { return Ok(None) };
        parse(&text).map(Some).ok_or_else(|| {
            Error::config(
                ConfigIssue::OptionValue,
                format!("{OURS}{name}={text:.80} can't be read: write {expected}"),
            )
        })
    }

    /// `host`, `host:port` or `[v6]:port` out of an address, with the port filled in.
    ///
    /// # Errors
    /// What is wrong with it, for the backend's own error.
    pub fn with_port(host: &str, default_port: u16) -> Result<String, &'static str> {
        let bare = |host: &str| !host.is_empty() && !host.contains(['[', ']', '/', '?', '#', ' ']);
        let v6 = host.strip_prefix('[').and_then(|rest| rest.split_once(']'));
        let (host, rest) = match v6 {
            Some((host, rest)) if host.parse::<Ipv6Addr>().is_ok() => (format!("[{host}]"), rest),
            Some(_) => return Err("between brackets stands no IPv6 address"),
            None => {
                let at = host.find(':').unwrap_or(host.len());
                if !bare(&host[..at]) {
                    return Err("a host's name is missing or can't be read");
                }
                (host[..at].to_owned(), &host[at..])
            }
        };
        match rest.strip_prefix(':') {
            None if rest.is_empty() => Ok(format!("{host}:{default_port}")),
            Some(port) if port.parse::<u16>().is_ok_and(|port| port > 0) => {
                Ok(format!("{host}:{port}"))
            }
            _ => Err("a port is not a number from 1 to 65535"),
        }
    }

    /// Makes sure that every option has been taken. `known` are the options that exist, for the
    /// message.
    ///
    /// # Errors
    /// `Config(UnknownOption)`, naming the option and those that exist.
    pub fn finish(&self, known: &[&str]) -> Result<(), Error> {
        let Some((name, _)) = self.options.first() else { return Ok(()) };
        let known: Vec<String> = known.iter().map(|name| format!("{OURS}{name}")).collect();
        Err(Error::config(
            ConfigIssue::UnknownOption,
            format!(
                "{}: has no option {OURS}{name:.80}; known are {}",
                self.scheme,
                known.join(", ")
            ),
        ))
    }
}

impl FromStr for BackendUrl {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        // The text may hold a password, so no message shows it.
        let malformed = |what: &str| {
            Error::config(
                ConfigIssue::Url,
                format!("{what}: write scheme:address, such as sqlite:locks.db or memory:"),
            )
        };
        let (scheme, rest) =
            text.split_once(':').ok_or_else(|| malformed("a backend URL has no scheme"))?;
        let first = scheme.bytes().next().is_some_and(|b| b.is_ascii_alphabetic());
        let rest_of = scheme.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b));
        if !first || !rest_of {
            return Err(malformed("a backend URL has a malformed scheme"));
        }
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));

        let (mut options, mut drivers) = (Vec::<(String, String)>::new(), Vec::new());
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let Some(name) = key.strip_prefix(OURS) else {
                drivers.push(pair);
                continue;
            };
            if options.iter().any(|(known, _)| known == name) {
                return Err(Error::config(
                    ConfigIssue::RepeatedOption,
                    format!("the option {key:.80} stands twice in the URL: write it once"),
                ));
            }
            let value = percent_decode_str(value).decode_utf8().map_err(|_| {
                Error::config(
                    ConfigIssue::OptionValue,
                    format!("the value of {key:.80} is not UTF-8: percent-encode it as UTF-8"),
                )
            })?;
            options.push((name.to_owned(), value.into_owned()));
        }
        let mut address = path.to_owned();
        if !drivers.is_empty() {
            address.push('?');
            address.push_str(&drivers.join("&"));
        }
        Ok(Self { scheme: scheme.to_ascii_lowercase(), address, options })
    }
}

impl fmt::Display for BackendUrl {
    /// Without the password, and without the driver's options, which may hold one.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.address.split('?').next().unwrap_or_default();
        match (path.strip_prefix("//"), path.rfind('@')) {
            (Some(authority), Some(at)) => {
                let user = authority.split([':', '@']).next().unwrap_or_default();
                write!(f, "{}://{user}:***{}", self.scheme, &path[at..])
            }
            _ => write!(f, "{}:{path}", self.scheme),
        }
    }
}

impl fmt::Debug for BackendUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BackendUrl({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;

    fn issue(text: &str) -> ErrorKind {
        text.parse::<BackendUrl>().unwrap_err().kind()
    }

    #[test]
    fn our_options_are_taken_and_the_drivers_stay() {
        let mut url: BackendUrl =
            "sqlite:/a/b.db?mode=rw&dlock.lease=5s&dlock.prefix=a%2Fb&x=1".parse().unwrap();
        assert_eq!(url.for_driver(), "sqlite:/a/b.db?mode=rw&x=1");
        assert_eq!(url.take_duration("lease").unwrap(), Some(Duration::from_secs(5)));
        assert_eq!(url.take("prefix").as_deref(), Some("a/b"));
        assert!(url.finish(&[]).is_ok());
    }

    #[test]
    fn what_is_left_over_is_an_error_that_lists_the_known_options() {
        let url: BackendUrl = "memory:?dlock.leese=5s".parse().unwrap();
        let error = url.finish(&["lease", "wait"]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config(ConfigIssue::UnknownOption));
        assert!(error.to_string().contains("dlock.leese"), "{error}");
        assert!(error.to_string().contains("dlock.lease, dlock.wait"), "{error}");
    }

    #[test]
    fn malformed_urls_have_their_own_errors() {
        assert_eq!(issue("no-scheme"), ErrorKind::Config(ConfigIssue::Url));
        assert_eq!(issue("://x"), ErrorKind::Config(ConfigIssue::Url));
        assert_eq!(issue("a b:x"), ErrorKind::Config(ConfigIssue::Url));
        assert_eq!(
            issue("memory:?dlock.a=1&dlock.a=1"),
            ErrorKind::Config(ConfigIssue::RepeatedOption)
        );
        let mut url: BackendUrl = "memory:?dlock.lease=soon".parse().unwrap();
        assert_eq!(
            url.take_duration("lease").unwrap_err().kind(),
            ErrorKind::Config(ConfigIssue::OptionValue)
        );
    }

    #[test]
    fn passwords_are_not_shown() {
        for text in [
            "redis://user:hunter2@host:1/0?password=hunter2",
            "redis://:hunter2@host",
            "redis://user:hunt@hunter2@host",
            "hunter2",
        ] {
            let shown = match text.parse::<BackendUrl>() {
                Ok(url) => format!("{url} {url:?}"),
                Err(error) => format!("{error} {error:?}"),
            };
            assert!(!shown.contains("hunter2"), "{shown}");
        }
    }
}
