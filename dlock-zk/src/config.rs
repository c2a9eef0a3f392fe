//! The configuration of a ZooKeeper store.

use std::{fmt, path::PathBuf, time::Duration};

use dlock_core::{BackendUrl, ConfigIssue, Error, TlsFiles};

use crate::{acl::Acl, error::value};

/// The configuration of a ZooKeeper store: its servers, the login, and the directory of its locks.
///
/// ```
/// use std::time::Duration;
/// use dlock_zk::ZkConfig;
/// # fn main() -> Result<(), dlock_core::Error> {
/// let config = ZkConfig::from_url("zk://user:secret@z1,z2,z3/shop")?
///     .with_root("/locks")
///     .with_session_timeout(Duration::from_secs(20));
/// # Ok(()) }
/// ```
///
/// dlock can't use a client of the application, for three reasons. The client's session would hold
/// the locks, so they would be lost if the application closed it or changed its login. dlock
/// replaces an expired session; on an application's client this would remove the application's
/// ephemeral nodes and watches. The length of a lease depends on dlock's own session timeout. So
/// dlock has its own session, and with it its own connection. No type of the driver is part of this
/// API.
#[derive(Clone)]
pub struct ZkConfig {
    /// The servers, each as `host:port`.
    pub(crate) hosts: Vec<String>,
    /// Empty, or a path that begins with `/`.
    pub(crate) chroot: String,
    /// Below the chroot: empty, or a path that begins with `/`.
    pub(crate) root: String,
    pub(crate) session_timeout: Duration,
    /// `user:password` for the scheme `digest`.
    pub(crate) login: Option<String>,
    pub(crate) acl: Option<Acl>,
    pub(crate) tls: Option<TlsFiles>,
}

impl ZkConfig {
    /// The names of dlock's own options in a URL, without `dlock.`.
    pub const OPTIONS: &'static [&'static str] =
        &["acl", "root", "session_timeout", "tls_ca", "tls_cert", "tls_key"];

    /// The schemes of the URLs.
    pub const SCHEMES: &'static [&'static str] = &["zk", "zks"];

    const DEFAULT_ROOT: &'static str = "/dlock";
    const DEFAULT_TIMEOUT: Duration = Duration::from_secs(15);
    const PORT: u16 = 2181;

    /// Uses these servers, each `host` or `host:port`, without a chroot.
    ///
    /// # Errors
    /// `Config(Url)` if there is no server, or if a host is invalid.
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
            chroot: String::new(),
            root: Self::DEFAULT_ROOT.to_owned(),
            session_timeout: Self::DEFAULT_TIMEOUT,
            login: None,
            acl: None,
            tls: None,
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

    /// Sets the chroot: the part of the tree that contains all paths, such as `/shop`. It has to
    /// exist. Empty, or `/`, means the whole tree.
    #[must_use]
    pub fn with_chroot(mut self, chroot: &str) -> Self {
        self.chroot = trimmed(chroot);
        self
    }

    /// Sets the directory that contains the locks' directories, `/dlock` by default. It is created
    /// if it is missing, and removed with its last lock. Empty, or `/`, means directly below the
    /// chroot.
    #[must_use]
    pub fn with_root(mut self, root: &str) -> Self {
        self.root = trimmed(root);
        self
    }

    /// Sets how long the servers keep the session of a silent client, 1 s to 1 h; 15 s by default.
    /// The servers may choose another timeout (`minSessionTimeout`, `maxSessionTimeout`). The lock
    /// of a dead holder is free after this time. Leases are at most half as long: see
    /// [`Backend::longest_lease`](dlock_core::Backend::longest_lease).
    ///
    /// It should be longer than the servers' `syncLimit` times `tickTime`: for that long, a
    /// follower that is partitioned from its leader continues to serve clients.
    #[must_use]
    pub const fn with_session_timeout(mut self, timeout: Duration) -> Self {
        self.session_timeout = timeout;
        self
    }

    /// Sets the credentials for the scheme `digest`.
    #[must_use]
    pub fn with_login(mut self, user: &str, password: &str) -> Self {
        self.login = Some(format!("{user}:{password}"));
        self
    }

    /// Sets the access rights of new nodes: `open`, `creator`, or `scheme:id:rights` separated by
    /// commas, with rights out of `rwcda`. The default is `creator` with credentials, and `open`
    /// without.
    ///
    /// # Errors
    /// `Config(OptionValue)` for an invalid ACL.
    pub fn with_acl(mut self, acl: &str) -> Result<Self, Error> {
        self.acl = Some(acl.parse()?);
        Ok(self)
    }

    /// Uses TLS, with the authorities in this PEM file, and optionally the client's own certificate
    /// and key. It needs the Cargo feature `tls`.
    #[must_use]
    pub fn with_tls(mut self, authorities: PathBuf, own: Option<(PathBuf, PathBuf)>) -> Self {
        self.tls = Some(TlsFiles::new(authorities, own));
        self
    }

    /// Takes dlock's options out of a URL and reads the rest.
    pub(crate) fn take(url: &mut BackendUrl) -> Result<Self, Error> {
        let scheme = url.scheme().to_owned();
        if !Self::SCHEMES.contains(&scheme.as_str()) {
            return Err(url.not_of("ZooKeeper", Self::SCHEMES));
        }
        if url.address().contains('?') {
            return Err(Error::config(
                ConfigIssue::UnknownOption,
                "ZooKeeper URLs have only dlock's own options: write them with dlock. before the \
                 name, such as dlock.session_timeout=20s",
            ));
        }
        let servers = url.servers(Self::PORT).map_err(malformed)?;
        let mut config = Self::of(servers.hosts).with_chroot(&servers.path);
        if let Some((user, password)) = servers.login {
            if user.contains(':') {
                // The server would take the part behind the colon for the password.
                return Err(malformed("a user name of the scheme digest can't contain a :"));
            }
            config = config.with_login(&user, &password);
        }
        if let Some(root) = url.take("root") {
            config.root = trimmed(&root);
        }
        if let Some(timeout) = url.take_duration("session_timeout")? {
            config.session_timeout = timeout;
        }
        if let Some(acl) = url.take("acl") {
            config.acl = Some(acl.parse()?);
        }
        config.tls = url.take_tls("zks", scheme == "zks")?;
        Ok(config)
    }

    /// Checks the complete configuration.
    pub(crate) fn checked(self) -> Result<Self, Error> {
        let (shortest, longest) = (Duration::from_secs(1), Duration::from_secs(3600));
        if self.session_timeout < shortest || self.session_timeout > longest {
            return Err(value("dlock.session_timeout is out of range: use 1s to 1h"));
        }
        for path in [&self.chroot, &self.root] {
            check_path(path)?;
        }
        if self.chroot.is_empty()
            && (self.root == "/zookeeper" || self.root.starts_with("/zookeeper/"))
        {
            return Err(value("dlock.root: /zookeeper is the server's own: choose another"));
        }
        if self.acl == Some(Acl::Creator) && self.login.is_none() {
            return Err(value(
                "dlock.acl=creator needs credentials: write a user and password in the URL \
                 (zk://user:password@host)",
            ));
        }
        #[cfg(feature = "tls")]
        if self.tls.is_some() {
            self.hosts.iter().try_for_each(|host| crate::tls::check_host(host))?;
        }
        match &self.tls {
            Some(_) if cfg!(not(feature = "tls")) => Err(Error::config(
                ConfigIssue::MissingFeature,
                "zks: needs the Cargo feature \"tls\": enable it for dlock in Cargo.toml",
            )),
            Some(tls) if tls.authorities.is_none() => Err(value(
                "zks: trusts no authority by default: set dlock.tls_ca to the file of the \
                 authority that signed the servers' certificates",
            )),
            _ => Ok(self),
        }
    }

    /// Returns the access rights of new nodes.
    pub(crate) fn acl(&self) -> Acl {
        match &self.acl {
            Some(acl) => acl.clone(),
            None if self.login.is_some() => Acl::Creator,
            None => Acl::Open,
        }
    }

    /// Returns these entries for servers and the chroot, in the driver's form.
    pub(crate) fn cluster(&self, entries: &[String]) -> String {
        format!("{}{}", entries.join(","), self.chroot)
    }

    /// Returns the kind and the address of the store, without secrets.
    pub(crate) fn store(&self) -> String {
        let mut hosts = self.hosts.clone();
        hosts.sort();
        let tls = if self.tls.is_some() { "s" } else { "" };
        format!("zk{tls}://{}{}{}", hosts.join(","), self.chroot, self.root)
    }
}

/// Removes the slash at the end of a path. The root becomes empty.
fn trimmed(path: &str) -> String {
    match path.trim_matches('/') {
        "" => String::new(),
        path => format!("/{path}"),
    }
}

/// Refuses a path that ZooKeeper does not accept.
fn check_path(path: &str) -> Result<(), Error> {
    let odd = |c: char| c.is_control() || matches!(c, '\u{e000}'..='\u{f8ff}' | '\u{fff0}'..);
    for part in path.split('/').skip(1) {
        if part.is_empty() || part == "." || part == ".." || part.contains(odd) {
            return Err(value(
                "dlock.root or the chroot is not a path: write it as /shop/locks, without empty \
                 parts, . and .., and without characters that ZooKeeper does not allow",
            ));
        }
    }
    Ok(())
}

/// Returns the error of a malformed URL. No message shows the URL, which may contain a password.
fn malformed(what: &str) -> Error {
    Error::config(
        ConfigIssue::Url,
        format!(
            "{what}: write zk://user:password@host1:2181,host2:2181/chroot; {}",
            BackendUrl::ENCODE
        ),
    )
}

impl fmt::Debug for ZkConfig {
    /// Prints the configuration without the login.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ZkConfig")
            .field("store", &self.store())
            .field("session_timeout", &self.session_timeout)
            .field("acl", &self.acl())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use dlock_core::ErrorKind;

    use super::*;

    fn read(url: &str) -> ZkConfig {
        ZkConfig::from_url(url).unwrap_or_else(|error| panic!("{url}: {error}"))
    }

    fn issue(url: &str) -> ConfigIssue {
        let error = ZkConfig::from_url(url).expect_err(url);
        match error.kind() {
            ErrorKind::Config(issue) => issue,
            kind => panic!("{url}: {kind:?}"),
        }
    }

    #[test]
    fn a_url_has_hosts_chroot_and_credentials() {
        let config = read("zk://us%40er:p%3Aw@z1,z2:2182,[::1]/shop/eu?dlock.root=locks/");
        assert_eq!(config.hosts, ["z1:2181", "z2:2182", "[::1]:2181"]);
        assert_eq!((config.chroot.as_str(), config.root.as_str()), ("/shop/eu", "/locks"));
        assert_eq!(config.login.as_deref(), Some("us@er:p:w"));
        assert_eq!(config.cluster(&config.hosts), "z1:2181,z2:2182,[::1]:2181/shop/eu");
        assert_eq!(config.acl(), Acl::Creator);
    }

    #[test]
    fn a_missing_option_has_a_default() {
        let config = read("zk://host");
        assert_eq!((config.chroot.as_str(), config.root.as_str()), ("", "/dlock"));
        assert_eq!(config.session_timeout, Duration::from_secs(15));
        assert_eq!(config.acl(), Acl::Open);
        assert_eq!(config.store(), "zk://host:2181/dlock");
        assert_eq!(read("zk://host/?dlock.root=/").store(), "zk://host:2181");
    }

    #[test]
    fn the_builder_says_the_same() {
        let config = ZkConfig::new(["b", "a:7"]).unwrap().with_chroot("/x/").with_root("y");
        assert_eq!(config.store(), "zk://a:7,b:2181/x/y");
        assert!(config.with_acl("nonsense").is_err());
    }

    #[test]
    fn a_wrong_url_is_refused() {
        use ConfigIssue::{OptionValue, UnknownOption, UnknownScheme, Url};
        for (url, expected) in [
            ("zk:host", Url),
            ("zk://", Url),
            ("zk://a,,b", Url),
            ("zk://a:port", Url),
            ("zk://a:0", Url),
            ("zk://[::x]", Url),
            ("zk://user@a", Url),
            ("zk://:pw@a", Url),
            ("zk://a%3Ab:pw@h", Url),
            ("zk://user:a@b/c@h", Url),
            ("zk://user:a@b?dlock.root=c@h", Url),
            ("zk://a/%ff", Url),
            ("zookeeper://a", UnknownScheme),
            ("zk://a?timeout=1", UnknownOption),
            ("zk://a?dlock.sessiontimeout=1s", UnknownOption),
            ("zk://a?dlock.session_timeout=soon", OptionValue),
            ("zk://a?dlock.session_timeout=999ms", OptionValue),
            ("zk://a?dlock.session_timeout=2h", OptionValue),
            ("zk://a/x//y", OptionValue),
            ("zk://a?dlock.root=/a/../b", OptionValue),
            ("zk://a?dlock.root=/a%00", OptionValue),
            ("zk://a?dlock.root=/zookeeper/x", OptionValue),
            ("zk://a?dlock.acl=creator", OptionValue),
            ("zk://a?dlock.acl=world:anyone", OptionValue),
            ("zk://a?dlock.acl=world:anyone:x", OptionValue),
            ("zk://a?dlock.acl=", OptionValue),
            ("zk://a?dlock.tls_ca=x", OptionValue),
            ("zks://a?dlock.tls_cert=x", OptionValue),
        ] {
            assert_eq!(issue(url), expected, "{url}");
        }
    }

    #[test]
    #[cfg(feature = "tls")]
    fn tls_needs_an_authority() {
        assert_eq!(issue("zks://a"), ConfigIssue::OptionValue);
        assert!(read("zks://a?dlock.tls_ca=/ca.pem").tls.is_some());
    }

    #[test]
    #[cfg(not(feature = "tls"))]
    fn tls_needs_its_feature() {
        assert_eq!(issue("zks://a?dlock.tls_ca=/ca.pem"), ConfigIssue::MissingFeature);
    }

    #[test]
    fn no_password_is_shown() {
        let config = read("zk://user:hunter2@a");
        assert!(!format!("{config:?} {}", config.store()).contains("hunter2"));
        for url in ["zk://user:hunter2@a?dlock.x=1", "zk://user:hunter2@", "zkx://user:hunter2@a"] {
            let error = ZkConfig::from_url(url).expect_err(url);
            assert!(!format!("{error} {error:?}").contains("hunter2"), "{error:?}");
        }
    }
}
