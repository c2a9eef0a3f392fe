//! The parts of a URL that stores with servers have in common.

use std::{fmt, path::PathBuf};

use percent_encoding::percent_decode_str;

use super::url::BackendUrl;
use crate::{ConfigIssue, Error};

/// The servers of a store, as its URL names them: see [`BackendUrl::servers`].
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Servers {
    /// The user and the password, neither of which is empty.
    pub login: Option<(String, String)>,
    /// At least one, each as `host:port`.
    pub hosts: Vec<String>,
    /// The text after the hosts: empty, or it begins with a slash.
    pub path: String,
}

/// PEM files for TLS: see [`BackendUrl::take_tls`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TlsFiles {
    /// The authorities to trust.
    pub authorities: Option<PathBuf>,
    /// The client's own certificate, and its key.
    pub certificate: Option<(PathBuf, PathBuf)>,
}

impl TlsFiles {
    /// Trusts these authorities. `own` is the client's own certificate and its key.
    pub fn new(authorities: PathBuf, own: Option<(PathBuf, PathBuf)>) -> Self {
        Self { authorities: Some(authorities), certificate: own }
    }
}

impl BackendUrl {
    /// Parses the address as `//[user:password@]host[:port][,host[:port]...][/path]`, and decodes
    /// its parts.
    ///
    /// # Errors
    /// A description, which shows no part of the address: it may contain a password.
    pub fn servers(&self, default_port: u16) -> Result<Servers, &'static str> {
        let rest = self.address().strip_prefix("//").ok_or("the // is missing")?;
        let at = rest.find('/').unwrap_or(rest.len());
        let (authority, path) = rest.split_at(at);
        let path = Self::decoded(path)?;
        if path.contains('@') {
            // Here it ends a password, even if it is percent-encoded, and messages show the path.
            return Err("an @ follows the first /, and a path can't have one");
        }
        let (login, hosts) = authority.rsplit_once('@').unwrap_or(("", authority));
        let hosts = hosts.split(',').map(|host| Self::with_port(host, default_port));
        let hosts = hosts.collect::<Result<Vec<_>, _>>()?;
        let login = match login.split_once(':') {
            _ if login.is_empty() => None,
            Some((user, password)) if !user.is_empty() && !password.is_empty() => {
                Some((Self::decoded(user)?, Self::decoded(password)?))
            }
            _ => return Err("the credentials are not user:password"),
        };
        Ok(Servers { login, hosts, path })
    }

    /// Decodes a part of an address that is percent-encoded.
    ///
    /// # Errors
    /// A description for a `%` that begins no encoded byte, and for text that is not UTF-8.
    pub fn decoded(part: &str) -> Result<String, &'static str> {
        let is_encoded =
            |rest: &str| rest.bytes().take(2).filter(u8::is_ascii_hexdigit).count() == 2;
        if !part.split('%').skip(1).all(is_encoded) {
            return Err("a % is not followed by two hexadecimal digits: write % itself as %25");
        }
        let text = percent_decode_str(part).decode_utf8();
        text.map(|text| text.into_owned())
            .map_err(|_| "a part of the URL is not UTF-8: percent-encode it as UTF-8")
    }

    /// Removes the options `dlock.tls_ca`, `dlock.tls_cert` and `dlock.tls_key`. `secure` is the
    /// scheme for TLS, and `is_secure` is whether the URL has it. Without it, the result is `None`.
    ///
    /// # Errors
    /// `Config(OptionValue)` if only one of certificate and key is there, and for all of these
    /// options without TLS.
    pub fn take_tls(&mut self, secure: &str, is_secure: bool) -> Result<Option<TlsFiles>, Error> {
        let value = |why: String| Error::config(ConfigIssue::OptionValue, why);
        let authorities = self.take("tls_ca").map(PathBuf::from);
        let certificate = match (self.take("tls_cert"), self.take("tls_key")) {
            (Some(certificate), Some(key)) => Some((certificate.into(), key.into())),
            (None, None) => None,
            _ => {
                return Err(value("dlock.tls_cert and dlock.tls_key go together: set both".into()));
            }
        };
        let files = TlsFiles { authorities, certificate };
        if !is_secure && files != TlsFiles::default() {
            let why = format!("dlock.tls_* has no effect without TLS: use a URL with {secure}:");
            return Err(value(why));
        }
        Ok(is_secure.then_some(files))
    }
}

impl fmt::Debug for Servers {
    /// Prints the servers without the login.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Servers")
            .field("hosts", &self.hosts)
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn servers(address: &str) -> Result<Servers, &'static str> {
        format!("x:{address}").parse::<BackendUrl>().unwrap().servers(7)
    }

    #[test]
    fn the_parts_of_an_address_are_decoded() {
        let read = servers("//u%3A:p%40s@a,[::1]:8/b%20c/d").unwrap();
        assert_eq!(read.login, Some(("u:".to_owned(), "p@s".to_owned())));
        assert_eq!(read.hosts, ["a:7", "[::1]:8"]);
        assert_eq!(read.path, "/b c/d");
        assert!(!format!("{read:?}").contains("p@s"));
        let plain = servers("//a").unwrap();
        assert_eq!((plain.login, plain.path.as_str()), (None, ""));
    }

    #[test]
    fn other_addresses_are_refused() {
        for address in [
            "a",
            "//",
            "//a,",
            "//u@a",
            "//u:@a",
            "//:p@a",
            "//u:1/q@a",
            "//u:1/q%40a",
            "//a:x",
            "//u:p%zz@a",
            "//u:p%@a",
            "//u:p%4@a",
            "//a/%é",
        ] {
            assert!(servers(address).is_err(), "{address}");
        }
    }

    #[test]
    fn files_need_tls_and_each_other() {
        for (options, secure, expected) in [
            ("", false, Ok(false)),
            ("", true, Ok(true)),
            ("?dlock.tls_ca=a&dlock.tls_cert=c&dlock.tls_key=k", true, Ok(true)),
            ("?dlock.tls_ca=a", false, Err("use a URL with xs:")),
            ("?dlock.tls_cert=c&dlock.tls_key=k", false, Err("use a URL with xs:")),
            ("?dlock.tls_cert=c", true, Err("set both")),
            ("?dlock.tls_key=k", false, Err("set both")),
        ] {
            let mut url: BackendUrl = format!("x://a{options}").parse().unwrap();
            let taken = url.take_tls("xs", secure);
            match expected {
                Ok(some) => assert_eq!(taken.unwrap().is_some(), some, "{options}"),
                Err(says) => assert!(taken.unwrap_err().to_string().contains(says), "{options}"),
            }
            assert!(url.finish(&[]).is_ok());
        }
    }
}
