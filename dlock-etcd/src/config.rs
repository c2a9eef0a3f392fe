//! The configuration of an etcd store.

use std::{fmt, path::PathBuf, time::Duration};

use dlock_core::{BackendUrl, ConfigIssue, Error, TlsFiles};

use crate::{client::Access, error::value};

/// The configuration of an etcd store: its members, the login, and the prefix of its locks.
///
/// ```
/// use std::time::Duration;
/// use dlock_etcd::EtcdConfig;
/// # fn main() -> Result<(), dlock_core::Error> {
/// let config = EtcdConfig::from_url("etcd://user:secret@e1,e2,e3/shop/locks")?
///     .with_session_timeout(Duration::from_secs(20));
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct EtcdConfig {
    /// The members, each as `host:port`.
    pub(crate) hosts: Vec<String>,
    /// Empty, or a prefix that does not end with a slash.
    pub(crate) root: String,
    pub(crate) session_timeout: Duration,
    pub(crate) access: Access,
}

impl EtcdConfig {
    /// The names of dlock's own options in a URL, without `dlock.`.
    pub const OPTIONS: &'static [&'static str] =
        &["root", "session_timeout", "tls_ca", "tls_cert", "tls_key"];

    /// The schemes of the URLs.
    pub const SCHEMES: &'static [&'static str] = &["etcd", "etcds"];

    const DEFAULT_ROOT: &'static str = "/dlock";
    const DEFAULT_TIMEOUT: Duration = Duration::from_secs(15);
    const PORT: u16 = 2379;

    /// Uses these members of one cluster, each `host` or `host:port`.
    ///
    /// # Errors
    /// `Config(Url)` if there is no member, or if a host is invalid.
    pub fn new<'a>(hosts: impl IntoIterator<Item = &'a str>) -> Result<Self, Error> {
        let hosts = hosts
            .into_iter()
            .map(|host| BackendUrl::with_port(host, Self::PORT).map_err(malformed))
            .collect::<Result<Vec<_>, _>>()?;
        if hosts.is_empty() {
            return Err(malformed("a host is missing"));
        }
        Ok(Self::of(hosts))
    }

    fn of(hosts: Vec<String>) -> Self {
        Self {
            hosts,
            root: Self::DEFAULT_ROOT.to_owned(),
            session_timeout: Self::DEFAULT_TIMEOUT,
            access: Access::default(),
        }
    }

    /// Reads a URL. The crate's documentation lists the schemes and options.
    ///
    /// # Errors
    /// `Config(Url)`, `Config(UnknownScheme)`, `Config(UnknownOption)`, `Config(RepeatedOption)`,
    /// `Config(OptionValue)`, and `Config(MissingFeature)` for TLS without the feature `tls`. No
    /// error shows a password.
    pub fn from_url(url: &str) -> Result<Self, Error> {
        let mut url: BackendUrl = url.parse()?;
        let config = Self::take(&mut url)?;
        url.finish(Self::OPTIONS)?;
        config.checked()
    }

    /// Sets the prefix of the locks' keys, `/dlock` by default. With `/app/locks`, the lock `orders`
    /// is Go's `NewMutex(session, "/app/locks/orders")`. Empty, or `/`, means no prefix but a slash.
    #[must_use]
    pub fn with_root(mut self, root: &str) -> Self {
        root.trim_end_matches('/').clone_into(&mut self.root);
        self
    }

    /// Sets how long the servers keep the session of a silent client, 2 s to 5 min; 15 s by default.
    /// The servers raise it if it is below 1.5 times their election timeout. The lock of a dead
    /// holder is free after this time. Leases are at most two thirds as long: see
    /// [`Backend::longest_lease`](dlock_core::Backend::longest_lease).
    #[must_use]
    pub const fn with_session_timeout(mut self, timeout: Duration) -> Self {
        self.session_timeout = timeout;
        self
    }

    /// Sets the user and the password.
    #[must_use]
    pub fn with_login(mut self, user: &str, password: &str) -> Self {
        self.access.login = Some((user.to_owned(), password.to_owned()));
        self
    }

    /// Uses TLS, with the authorities in this PEM file, and optionally the client's own certificate
    /// and key. It needs the Cargo feature `tls`.
    #[must_use]
    pub fn with_tls(mut self, authorities: PathBuf, own: Option<(PathBuf, PathBuf)>) -> Self {
        self.access.tls = Some(TlsFiles::new(authorities, own));
        self
    }

    /// Takes dlock's options out of a URL and reads the rest.
    pub(crate) fn take(url: &mut BackendUrl) -> Result<Self, Error> {
        let scheme = url.scheme().to_owned();
        if !Self::SCHEMES.contains(&scheme.as_str()) {
            return Err(url.not_of("etcd", Self::SCHEMES));
        }
        if url.address().contains('?') {
            return Err(Error::config(
                ConfigIssue::UnknownOption,
                "etcd URLs have only dlock's own options: write them with dlock. before the name, \
                 such as dlock.session_timeout=20s",
            ));
        }
        let servers = url.servers(Self::PORT).map_err(malformed)?;
        let mut config = Self::of(servers.hosts);
        config.access.login = servers.login;
        let has_root = !servers.path.trim_matches('/').is_empty();
        if has_root {
            config = config.with_root(&servers.path);
        }
        if let Some(root) = url.take("root") {
            if has_root {
                return Err(value(
                    "the URL has a path and dlock.root, which mean the same: leave one out",
                ));
            }
            config = config.with_root(&root);
        }
        if let Some(timeout) = url.take_duration("session_timeout")? {
            config.session_timeout = timeout;
        }
        config.access.tls = url.take_tls("etcds", scheme == "etcds")?;
        Ok(config)
    }

    /// Checks the complete configuration.
    pub(crate) fn checked(self) -> Result<Self, Error> {
        // Above 5 min the servers replicate remaining TTLs, which a new leader may then use.
        let (shortest, longest) = (Duration::from_secs(2), Duration::from_secs(300));
        if self.session_timeout < shortest || self.session_timeout > longest {
            return Err(value("dlock.session_timeout is out of range: use 2s to 5m"));
        }
        if self.session_timeout.subsec_nanos() != 0 {
            return Err(value("dlock.session_timeout is not in whole seconds: use 15s"));
        }
        if self.root.chars().any(char::is_control) || self.root.len() > 1024 {
            return Err(value(
                "dlock.root is not a prefix of keys: use at most 1,024 bytes without control \
                 characters, such as /shop/locks",
            ));
        }
        #[cfg(feature = "tls")]
        if self.access.tls.is_some() {
            let check = |host: &String| crate::client::check_host(host);
            self.hosts.iter().try_for_each(check).map_err(|why| malformed(&why))?;
        }
        match &self.access.tls {
            Some(_) if cfg!(not(feature = "tls")) => Err(Error::config(
                ConfigIssue::MissingFeature,
                "etcds: needs the Cargo feature \"tls\": enable it for dlock in Cargo.toml",
            )),
            Some(tls) if tls.authorities.is_none() => Err(value(
                "etcds: trusts no authority by default: set dlock.tls_ca to the file of the \
                 authority that signed the servers' certificates",
            )),
            _ => Ok(self),
        }
    }

    /// Returns the kind and the address of the store, without secrets.
    pub(crate) fn store(&self) -> String {
        let mut hosts = self.hosts.clone();
        hosts.sort();
        let tls = if self.access.tls.is_some() { "s" } else { "" };
        format!("etcd{tls}://{}{}", hosts.join(","), self.root)
    }
}

/// Returns the error of a malformed URL. No message shows the URL, which may contain a password.
fn malformed(what: &str) -> Error {
    Error::config(
        ConfigIssue::Url,
        format!(
            "{what}: write etcd://user:password@host1:2379,host2:2379/root; {}",
            BackendUrl::ENCODE
        ),
    )
}

impl fmt::Debug for EtcdConfig {
    /// Prints the configuration without the login.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdConfig")
            .field("store", &self.store())
            .field("session_timeout", &self.session_timeout)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_read() {
        let config =
            EtcdConfig::from_url("etcd://u:p%40s@e1,e2:4001/shop/locks?dlock.session_timeout=20s")
                .unwrap();
        assert_eq!(config.hosts, ["e1:2379", "e2:4001"]);
        assert_eq!(config.root, "/shop/locks");
        assert_eq!(config.session_timeout, Duration::from_secs(20));
        assert_eq!(config.access.login, Some(("u".to_owned(), "p@s".to_owned())));
        assert_eq!(config.store(), "etcd://e1:2379,e2:4001/shop/locks");
        assert!(!format!("{config:?}").contains("p@s"));
        let plain = EtcdConfig::from_url("etcd://e1").unwrap();
        assert_eq!(
            (plain.root.as_str(), plain.store().as_str()),
            ("/dlock", "etcd://e1:2379/dlock")
        );
        assert_eq!(EtcdConfig::from_url("etcd://e1?dlock.root=/").unwrap().root, "");
    }

    #[test]
    fn bad_urls_are_refused_without_the_password() {
        use ConfigIssue::{OptionValue, RepeatedOption, UnknownOption, UnknownScheme, Url};
        for (url, issue) in [
            ("etcd:e1", Url),
            ("etcd://", Url),
            ("etcd://secret@e1", Url),
            ("etcd://u:@e1", Url),
            ("etcd://u:se/cret@e1", Url),
            ("etcd://u:secret?@e1", Url),
            ("etcd://e1,,e2", Url),
            ("zk://e1", UnknownScheme),
            ("etcd://e1?timeout=3", UnknownOption),
            ("etcd://e1?dlock.rot=3", UnknownOption),
            ("etcd://e1?dlock.root=a&dlock.root=b", RepeatedOption),
            ("etcd://e1/a?dlock.root=b", OptionValue),
            ("etcd://e1?dlock.session_timeout=1s", OptionValue),
            ("etcd://e1?dlock.session_timeout=6m", OptionValue),
            ("etcd://e1?dlock.session_timeout=2500ms", OptionValue),
            ("etcd://e1?dlock.tls_ca=a", OptionValue),
        ] {
            let error = EtcdConfig::from_url(url).unwrap_err();
            assert_eq!(error.kind(), dlock_core::ErrorKind::Config(issue), "{url}: {error}");
            assert!(!error.to_string().contains("secret"), "{error}");
        }
    }
}
