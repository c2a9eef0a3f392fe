//! The URL that chooses and configures a backend.

use std::{fmt, net::Ipv6Addr, str::FromStr, time::Duration};

use percent_encoding::percent_decode_str;

use super::suggest;
use crate::{ConfigIssue, Error, vocabulary::options::shown_duration};

/// A backend's URL: `scheme:address?option=value&...`.
///
/// Options whose names begin with `dlock.` belong to dlock: each may occur once, and an option that
/// no backend takes is an error. All other options stay in the address for the driver. `Display`
/// omits the login.
#[derive(Clone, PartialEq, Eq)]
pub struct BackendUrl {
    scheme: String,
    /// The text after `scheme:`, without dlock's options; it may contain a password.
    address: String,
    options: Vec<(String, String)>,
    /// The whole URL without secrets.
    shown: String,
    /// Whether an option is a password. An `&` in it that is not percent-encoded makes the rest of
    /// it look like other options, so no text shows the options.
    guarded: bool,
    /// The prefix of all names.
    prefix: String,
}

/// The prefix of dlock's own options.
const OURS: &str = "dlock.";

impl BackendUrl {
    /// The part of an error about a URL that can't be parsed which explains the user and the
    /// password.
    pub const ENCODE: &'static str = "in the user and the password, percent-encode / as %2F, ? as \
                                      %3F, # as %23, @ as %40, : as %3A and % as %25";

    /// The scheme, in lower case.
    pub fn scheme(&self) -> &str {
        &self.scheme
    }

    /// The text after `scheme:`, without dlock's options. **It may contain a password.**
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The URL for the driver: without dlock's options. **It may contain a password.**
    pub fn for_driver(&self) -> String {
        format!("{}:{}", self.scheme, self.address)
    }

    /// Returns the text in which an error shows an option's name. It is `...` if the name may be a
    /// part of a password that is not percent-encoded.
    pub fn shown_option<'a>(&self, name: &'a str) -> &'a str {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.[]".contains(&byte);
        if self.guarded || !name.bytes().all(plain) { "..." } else { name }
    }

    /// Returns the error for a scheme that is not one of these schemes of a store.
    pub fn not_of(&self, store: &str, schemes: &[&str]) -> Error {
        let scheme = self.shown_scheme();
        let schemes = schemes.join(", ");
        Error::config(
            ConfigIssue::UnknownScheme,
            format!("{scheme:.40}: is not a scheme of {store}: use {schemes}"),
        )
    }

    /// Returns the scheme for an error. It is `...` if it may be the user of a URL without a
    /// scheme: `user:password@host`.
    pub(crate) fn shown_scheme(&self) -> &str {
        let may_be_user = self.address.contains('@') && !self.address.starts_with("//");
        if may_be_user { "..." } else { &self.scheme }
    }

    /// Informs the backend that all names will have this prefix, which
    /// [`Prefixed`](crate::Prefixed) adds. A backend that checks its permissions when it connects
    /// then checks only those for such names.
    #[must_use]
    pub fn with_prefix(mut self, prefix: &str) -> Self {
        prefix.clone_into(&mut self.prefix);
        self
    }

    /// The prefix of all names, if it was set; otherwise empty.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Removes the option `dlock.NAME` from the URL and returns its value.
    pub fn take(&mut self, name: &str) -> Option<String> {
        let at = self.options.iter().position(|(key, _)| key == name)?;
        Some(self.options.remove(at).1)
    }

    /// Removes the option `dlock.NAME` and parses it as a duration such as `500ms`, `30s` or
    /// `1h 30m`.
    ///
    /// # Errors
    /// `Config(OptionValue)`.
    pub fn take_duration(&mut self, name: &str) -> Result<Option<Duration>, Error> {
        self.take_parsed(name, "a duration such as 500ms, 30s or 5m", |text| {
            humantime::parse_duration(text).ok()
        })
    }

    /// Checks that a duration for the option `dlock.NAME` is within these bounds.
    ///
    /// # Errors
    /// `Config(OptionValue)`, which names the range.
    pub fn within(name: &str, time: Duration, from: Duration, to: Duration) -> Result<(), Error> {
        if (from..=to).contains(&time) {
            return Ok(());
        }
        let (from, to) = (shown_duration(from), shown_duration(to));
        Err(Error::config(
            ConfigIssue::OptionValue,
            format!("{OURS}{name} is out of range: use {from} to {to}"),
        ))
    }

    /// Removes the option `dlock.NAME` and parses it as `true` or `false`.
    ///
    /// # Errors
    /// `Config(OptionValue)`.
    pub fn take_bool(&mut self, name: &str) -> Result<Option<bool>, Error> {
        self.take_parsed(name, "true or false", |text| text.parse().ok())
    }

    /// Removes the option `dlock.NAME` and parses it as a whole number, at most `largest`.
    ///
    /// # Errors
    /// `Config(OptionValue)`, which names the range.
    pub fn take_number(&mut self, name: &str, largest: u64) -> Result<Option<u64>, Error> {
        self.take_parsed(name, &format!("a whole number from 0 to {largest}"), |text| {
            // Digits only: no sign.
            let digits = text.bytes().all(|byte| byte.is_ascii_digit());
            text.parse().ok().filter(|number| digits && *number <= largest)
        })
    }

    fn take_parsed<T>(
        &mut self,
        name: &str,
        expected: &str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Result<Option<T>, Error> {
        let Some(text) = self.take(name) else { return Ok(None) };
        parse(&text).map(Some).ok_or_else(|| {
            let shown = if self.guarded { "..." } else { &text };
            Error::config(
                ConfigIssue::OptionValue,
                format!("{OURS}{name}={shown:.80} can't be read: write {expected}"),
            )
        })
    }

    /// Parses `host`, `host:port` or `[v6]:port` of an address, and adds the port if it is missing.
    ///
    /// # Errors
    /// The problem with the text, for the backend's own error.
    pub fn with_port(host: &str, default_port: u16) -> Result<String, &'static str> {
        let bare = |host: &str| {
            !host.is_empty() && !host.contains(['[', ']', '/', '?', '#', '@', '%', ' '])
        };
        let v6 = host.strip_prefix('[').and_then(|rest| rest.split_once(']'));
        let (host, rest) = match v6 {
            // In the canonical form, so that equal addresses have equal texts.
            Some((host, rest)) => match host.parse::<Ipv6Addr>() {
                Ok(host) => (format!("[{host}]"), rest),
                Err(_) => return Err("the brackets contain no IPv6 address"),
            },
            None => {
                let at = host.find(':').unwrap_or(host.len());
                if !bare(&host[..at]) {
                    return Err("a host name is missing or invalid");
                }
                (host[..at].to_owned(), &host[at..])
            }
        };
        let digits = |port: &&str| port.bytes().all(|byte| byte.is_ascii_digit());
        let port = match rest.strip_prefix(':') {
            None if rest.is_empty() => Some(default_port),
            port => port.filter(digits).and_then(|port| port.parse().ok()).filter(|port| *port > 0),
        };
        let port = port.ok_or("a port is not a number from 1 to 65535")?;
        Ok(format!("{host}:{port}"))
    }

    /// Checks that every option has been taken. `known` are the existing options, for the message.
    ///
    /// # Errors
    /// `Config(UnknownOption)`, which names the option and the existing ones.
    pub fn finish(&self, known: &[&str]) -> Result<(), Error> {
        let Some((name, _)) = self.options.first() else { return Ok(()) };
        let known: Vec<String> = known.iter().map(|name| format!("{OURS}{name}")).collect();
        let (scheme, known) = (&self.scheme, known.join(", "));
        let message = match self.guarded {
            true => format!(
                "{scheme}: has an option that it does not know, or an & in a password: use only \
                 {known}; write & as %26"
            ),
            false => {
                let name = self.shown_option(name);
                format!("{scheme}: has no option {OURS}{name:.80}; use one of {known}")
            }
        };
        Err(Error::config(ConfigIssue::UnknownOption, message))
    }
}

impl FromStr for BackendUrl {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        // The text may contain a password, so no message shows it.
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
        if scheme.starts_with(['"', '\'']) {
            return Err(malformed(
                "a backend URL begins with a quotation mark, which is not a part of it",
            ));
        }
        if !first || !rest_of {
            return Err(match suggest::port_behind_a_host(text) {
                Some(port) => Error::config(
                    ConfigIssue::Url,
                    format!(
                        "a backend URL has no scheme, and begins with a host: {}",
                        suggest::before_a_host(port)
                    ),
                ),
                None => malformed("a backend URL has a malformed scheme"),
            });
        }
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        if query.contains('@') {
            // The @ may end a password with a ?, and messages show the text before the ? and
            // options.
            return Err(Error::config(
                ConfigIssue::Url,
                format!("the URL has an @ after a ?: write it as %40; {}", Self::ENCODE),
            ));
        }
        let guarded = query.split('&').any(|pair| {
            let name = pair.split('=').next().unwrap_or_default().to_ascii_lowercase();
            name.contains("pass") || name.contains("pwd") || name.contains("secret")
        });

        let (mut options, mut drivers) = (Vec::<(String, String)>::new(), Vec::new());
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let Some(name) = key.strip_prefix(OURS) else {
                drivers.push(pair);
                continue;
            };
            let shown = if guarded { "..." } else { key };
            if options.iter().any(|(known, _)| known == name) {
                return Err(Error::config(
                    ConfigIssue::RepeatedOption,
                    format!("the option {shown:.80} is given twice in the URL: write it once"),
                ));
            }
            let value = percent_decode_str(value).decode_utf8().map_err(|_| {
                Error::config(
                    ConfigIssue::OptionValue,
                    format!("the value of {shown:.80} is not UTF-8: percent-encode it as UTF-8"),
                )
            })?;
            options.push((name.to_owned(), value.into_owned()));
        }
        let mut address = path.to_owned();
        if !drivers.is_empty() {
            address.push('?');
            address.push_str(&drivers.join("&"));
        }
        let scheme = scheme.to_ascii_lowercase();
        let shown = format!("{scheme}:{}", without_login(path));
        Ok(Self { scheme, address, options, shown, guarded, prefix: String::new() })
    }
}

impl fmt::Display for BackendUrl {
    /// Shows neither the login nor the options, which may contain a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

impl fmt::Debug for BackendUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BackendUrl({self})")
    }
}

/// Returns the text before the options, without all that may be a user and a password.
fn without_login(path: &str) -> String {
    let (slashes, rest) = path.strip_prefix("//").map_or(("", path), |rest| ("//", rest));
    // An encoded @ may be the one before the host, encoded by mistake.
    match rest.rfind('@').max(rest.rfind("%40")) {
        Some(at) => format!("{slashes}***{}", &rest[at..]),
        None => path.to_owned(),
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
    fn an_unknown_option_is_an_error_that_lists_the_known_ones() {
        let url: BackendUrl = "memory:?dlock.leese=5s".parse().unwrap();
        let error = url.finish(&["lease", "wait"]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config(ConfigIssue::UnknownOption));
        assert!(error.to_string().contains("dlock.leese"), "{error}");
        assert!(error.to_string().contains("dlock.lease, dlock.wait"), "{error}");
    }

    #[test]
    fn a_url_in_quotation_marks_is_refused_without_its_password() {
        for text in ["\"redis://u:hunter2@h\"", "'redis://u:hunter2@h'"] {
            let error = text.parse::<BackendUrl>().unwrap_err().to_string();
            assert!(error.contains("quotation mark") && !error.contains("hunter2"), "{error}");
        }
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
    fn a_url_without_a_password_is_shown_unchanged() {
        for text in ["sqlite:/a/b.db", "zk://h:1,i/shop", "redis://h", "memory:", "sqlite:a:b"] {
            assert_eq!(text.parse::<BackendUrl>().unwrap().to_string(), text);
        }
        let url: BackendUrl = "redis://user:secret@h:1/0?dlock.prefix=a".parse().unwrap();
        assert_eq!(url.to_string(), "redis://***@h:1/0");
    }

    #[test]
    fn one_address_is_one_text() {
        for (host, expected) in [
            ("h", Ok("h:7")),
            ("h:007", Ok("h:7")),
            ("[0:0::1]:8", Ok("[::1]:8")),
            ("h:+8", Err(())),
            ("h:", Err(())),
            ("h:0", Err(())),
            ("h:65536", Err(())),
            ("[::1]8", Err(())),
            ("[h]", Err(())),
            ("a%40b:1", Err(())),
            ("", Err(())),
        ] {
            let found = BackendUrl::with_port(host, 7).map_err(|_| ());
            assert_eq!(found.as_deref(), expected.as_ref().map(|text| *text).map_err(|_| &()));
        }
    }

    #[test]
    fn a_range_is_written_as_in_a_url() {
        let (from, to) = (Duration::from_millis(10), Duration::from_secs(24 * 3600));
        assert!(BackendUrl::within("x", from, from, to).is_ok());
        let error = BackendUrl::within("x", Duration::ZERO, from, to).unwrap_err();
        assert_eq!(error.to_string(), "dlock.x is out of range: use 10ms to 24h");
        for (seconds, shown) in [(0, "0s"), (59, "59s"), (90, "90s"), (300, "5m")] {
            assert_eq!(shown_duration(Duration::from_secs(seconds)), shown);
        }
    }

    #[test]
    fn passwords_are_not_shown() {
        for text in [
            "redis://user:hunter2@host:1/0?password=hunter2",
            "redis://:hunter2@host",
            "redis://user:hunt@hunter2@host",
            "redis://user:hunter2?x@host",
            "redis://user:hunt@hunter2?x@host",
            "redis://user:hunter2?dlock.x=1@host",
            "redis://user:a?dlock.hunter2@host",
            "redis://user:a?dlock.hunter2&dlock.hunter2@host",
            "redis://user:a?dlock.plain=hunter2@host",
            "redis:user:hunter2@host",
            "redis://hunter2@host",
            "redis:///hunter2@host",
            "redis://user:1/hunter2@host",
            "redis://host?password=a&hunter2",
            "redis://host?password=a&dlock.hunter2=1",
            "redis://host?dlock.sentinel_password=a&dlock.plain=hunter2",
            "redis://user:1?dlock.hunter2%40host",
            "hunter2",
        ] {
            let shown = match text.parse::<BackendUrl>() {
                Ok(mut url) => {
                    format!("{url} {url:?} {:?} {:?}", url.take_bool("plain"), url.finish(&[]))
                }
                Err(error) => format!("{error} {error:?}"),
            };
            assert!(!shown.contains("hunter2"), "{shown}");
        }
    }
}
