//! Which servers to talk to, and how.

use std::{fmt, path::PathBuf, time::Duration};

use dlock_core::{BackendUrl, ConfigIssue, Error, Format};
use percent_encoding::percent_decode_str;

use crate::{acl::Acl, error::value, tls::Tls};

/// A ZooKeeper store: which servers, how to get in, and where its locks are.
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
/// A client of the application can't be used. Its session would hold the locks: they would be gone
/// when the application closes it or changes its login, and dlock replaces a session that has
/// expired, which on an application's would take its ephemeral nodes and watches along. dlock also
/// counts on its own time-out for how long a lease lasts. So it has a session, and with it a
/// connection, of its own; no type of the driver stands in this API.
#[derive(Clone)]
pub struct ZkConfig {
    /// Each `host:port`.
    pub(crate) hosts: Vec<String>,
    /// Empty, or a path that begins with `/`.
    pub(crate) chroot: String,
    /// Below the chroot: empty, or a path that begins with `/`.
    pub(crate) root: String,
    pub(crate) session_timeout: Duration,
    /// `user:password` for the scheme `digest`.
    pub(crate) login: Option<String>,
    pub(crate) acl: Option<Acl>,
    pub(crate) tls: Option<Tls>,
    pub(crate) format: Format,
}

impl ZkConfig {
    /// The names of dlock's own options in a URL.
    pub const OPTIONS: &'static [&'static str] =
        &["acl", "format", "root", "session_timeout", "tls_ca", "tls_cert", "tls_key"];

    /// The schemes of its URLs.
    pub const SCHEMES: &'static [&'static str] = &["zk", "zks"];

    const DEFAULT_ROOT: &'static str = "/dlock";
    const DEFAULT_TIMEOUT: Duration = Duration::from_secs(15);
    const PORT: u16 = 2181;

    /// These servers, each `host` or `host:port`, without a chroot.
    ///
    /// # Errors
    /// `Config(Url)` for none, or what is no host.
    pub fn new<'a>(hosts: impl IntoIterator<Item = &'a str>) -> Result<Self, Error> {
        let hosts = hosts
            .into_iter()
            .map(|host| BackendUrl::with_port(host, Self::PORT).map_err(malformed))
            .collect::<Result<Vec<_>, _>>()?;
        if hosts.is_empty() {
            return Err(malformed("a host is missing"));
        }
        Ok(Self {
            hosts,
            chroot: String::new(),
            root: Self::DEFAULT_ROOT.to_owned(),
            session_timeout: Self::DEFAULT_TIMEOUT,
            login: None,
            acl: None,
            tls: None,
            format: Format::default(),
        })
    }

    /// Reads a URL; the crate's documentation lists the schemes and options.
    ///
    /// # Errors
    /// `Config(Url)`, `Config(UnknownScheme)`, `Config(UnknownOption)`, `Config(RepeatedOption)`,
    /// `Config(OptionValue)`, and `Config(MissingFeature)` for TLS without the feature `tls`. None
    /// shows a password.
    pub fn from_url(url: &str) -> Result<Self, Error> {
        let mut url: BackendUrl = url.parse()?;
        let config = Self::take(&mut url)?;
        url.finish(Self::OPTIONS)?;
        config.checked()
    }

    /// The part of the tree that all paths are below, such as `/shop`. It has to exist. Empty, or
    /// `/`: the whole tree.
    #[must_use]
    pub fn with_chroot(mut self, chroot: &str) -> Self {
        self.chroot = trimmed(chroot);
        self
    }

    /// The directory of the locks' directories, `/dlock` by default. It is made where it is
    /// missing, and vanishes with its last lock. Empty, or `/`: directly below the chroot.
    #[must_use]
    pub fn with_root(mut self, root: &str) -> Self {
        self.root = trimmed(root);
        self
    }

    /// How long the servers keep a session that they do not hear from, 1 s to 1 h; 15 s by
    /// default. They may answer with another (`minSessionTimeout`, `maxSessionTimeout`). A dead
    /// holder's lock is free after it. Leases are at most half as long: see
    /// [`Backend::longest_lease`](dlock_core::Backend::longest_lease).
    ///
    /// It should be longer than the servers' `syncLimit` times `tickTime`, for which a follower
    /// that is cut off goes on without its leader.
    #[must_use]
    pub const fn with_session_timeout(mut self, timeout: Duration) -> Self {
        self.session_timeout = timeout;
        self
    }

    /// Credentials of the scheme `digest`.
    #[must_use]
    pub fn with_login(mut self, user: &str, password: &str) -> Self {
        self.login = Some(format!("{user}:{password}"));
        self
    }

    /// Who may do what with the nodes that are made: `open`, `creator`, or `scheme:id:rights`
    /// separated by commas, with rights out of `rwcda`. `creator` by default where there are
    /// credentials, else `open`.
    ///
    /// # Errors
    /// `Config(OptionValue)`.
    pub fn with_acl(mut self, acl: &str) -> Result<Self, Error> {
        self.acl = Some(acl.parse()?);
        Ok(self)
    }

    /// TLS, with the authorities in this PEM file, and maybe the client's own certificate and key.
    /// It needs the Cargo feature `tls`.
    #[must_use]
    pub fn with_tls(mut self, authorities: PathBuf, own: Option<(PathBuf, PathBuf)>) -> Self {
        self.tls = Some(Tls { authorities: Some(authorities), certificate: own });
        self
    }

    /// In which format nodes are written: the one that the version of dlock before this one reads,
    /// unless it is set to [`Format::NEWEST`] once no such program uses the servers. All formats are
    /// read. `dlock.format` in a URL does the same.
    #[must_use]
    pub const fn with_format(mut self, format: Format) -> Self {
        self.format = format;
        self
    }

    /// Takes dlock's options out of a URL and reads the rest.
    pub(crate) fn take(url: &mut BackendUrl) -> Result<Self, Error> {
        let scheme = url.scheme().to_owned();
        if !Self::SCHEMES.contains(&scheme.as_str()) {
            return Err(Error::config(
                ConfigIssue::UnknownScheme,
                format!("{scheme:.40}: is not of ZooKeeper: use {}", Self::SCHEMES.join(", ")),
            ));
        }
        if url.has_doubtful_options() {
            // It may end a password, too, and the root is shown.
            return Err(malformed("an @ stands behind the ?, where it has to be written %40"));
        }
        let mut config = Self::read_address(url.address())?;
        config.tls = (scheme == "zks").then(Tls::default);
        if let Some(root) = url.take("root") {
            config.root = trimmed(&root);
        }
        if let Some(timeout) = url.take_duration("session_timeout")? {
            config.session_timeout = timeout;
        }
        if let Some(acl) = url.take("acl") {
            config.acl = Some(acl.parse()?);
        }
        config.format = url.take_format()?;
        config.take_tls(url)?;
        Ok(config)
    }

    /// Reads `//[user:password@]host[:port][,...][/chroot]`.
    fn read_address(address: &str) -> Result<Self, Error> {
        let rest = address.strip_prefix("//").ok_or_else(|| malformed("// is missing"))?;
        if rest.contains('?') {
            return Err(Error::config(
                ConfigIssue::UnknownOption,
                "ZooKeeper URLs have no options but dlock's own, which begin with dlock., such as \
                 dlock.session_timeout=20s",
            ));
        }
        let (authority, chroot) = rest.split_once('/').unwrap_or((rest, ""));
        if chroot.contains('@') {
            // It ends a password then, which must not end up in a path.
            return Err(malformed("an @ stands behind a slash, where it has to be written %40"));
        }
        let (login, hosts) = authority.rsplit_once('@').unwrap_or(("", authority));
        let mut config = Self::new(hosts.split(','))?.with_chroot(&decoded(chroot)?);
        config.login = match login.split_once(':') {
            _ if login.is_empty() => None,
            Some((user, password)) if !user.is_empty() && !password.is_empty() => {
                let user = decoded(user)?;
                if user.contains(':') {
                    // The server would take the rest of it for the password.
                    return Err(malformed("a user of the scheme digest has no :"));
                }
                Some(format!("{user}:{}", decoded(password)?))
            }
            _ => return Err(malformed("credentials are user:password")),
        };
        Ok(config)
    }

    fn take_tls(&mut self, url: &mut BackendUrl) -> Result<(), Error> {
        let authorities = url.take("tls_ca").map(PathBuf::from);
        let certificate = match (url.take("tls_cert"), url.take("tls_key")) {
            (Some(certificate), Some(key)) => Some((certificate.into(), key.into())),
            (None, None) => None,
            _ => return Err(value("dlock.tls_cert and dlock.tls_key go together")),
        };
        match &mut self.tls {
            Some(tls) => *tls = Tls { authorities, certificate },
            None if authorities.is_some() || certificate.is_some() => {
                return Err(value("dlock.tls_* needs a zks URL"));
            }
            None => {}
        }
        Ok(())
    }

    /// Checks what is put together.
    pub(crate) fn checked(self) -> Result<Self, Error> {
        let (shortest, longest) = (Duration::from_secs(1), Duration::from_secs(3600));
        if self.session_timeout < shortest || self.session_timeout > longest {
            return Err(value("dlock.session_timeout has to be 1s to 1h"));
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
                "dlock.acl=creator needs a user and password in the URL: zk://user:password@host",
            ));
        }
        #[cfg(feature = "tls")]
        if self.tls.is_some() {
            self.hosts.iter().try_for_each(|host| crate::tls::check_host(host))?;
        }
        match &self.tls {
            Some(_) if cfg!(not(feature = "tls")) => Err(Error::config(
                ConfigIssue::MissingFeature,
                "zks: needs the Cargo feature \"tls\"",
            )),
            Some(tls) if tls.authorities.is_none() => Err(value(
                "zks: no authority is trusted by itself: give the file of the one that made the \
                 servers' certificates with dlock.tls_ca",
            )),
            _ => Ok(self),
        }
    }

    /// Who may do what with the nodes that are made.
    pub(crate) fn acl(&self) -> Acl {
        match &self.acl {
            Some(acl) => acl.clone(),
            None if self.login.is_some() => Acl::Creator,
            None => Acl::Open,
        }
    }

    /// Where the driver connects to.
    pub(crate) fn cluster(&self) -> String {
        format!("{}{}", self.hosts.join(","), self.chroot)
    }

    /// Kind and address without secrets.
    pub(crate) fn store(&self) -> String {
        let mut hosts = self.hosts.clone();
        hosts.sort();
        let tls = if self.tls.is_some() { "s" } else { "" };
        format!("zk{tls}://{}{}{}", hosts.join(","), self.chroot, self.root)
    }
}

/// A path without the slash behind it; empty for the root.
fn trimmed(path: &str) -> String {
    match path.trim_matches('/') {
        "" => String::new(),
        path => format!("/{path}"),
    }
}

/// What ZooKeeper takes for a path.
fn check_path(path: &str) -> Result<(), Error> {
    let odd = |c: char| c.is_control() || matches!(c, '\u{e000}'..='\u{f8ff}' | '\u{fff0}'..);
    for part in path.split('/').skip(1) {
        if part.is_empty() || part == "." || part == ".." || part.contains(odd) {
            return Err(value(
                "dlock.root and the chroot are paths such as /shop/locks, without empty parts, . \
                 and .., and without characters that ZooKeeper does not take",
            ));
        }
    }
    Ok(())
}

fn decoded(text: &str) -> Result<String, Error> {
    let text = percent_decode_str(text).decode_utf8();
    text.map(|text| text.into_owned())
        .map_err(|_| malformed("a part of the URL is not UTF-8: percent-encode it as UTF-8"))
}

/// No message shows the URL, which may hold a password.
fn malformed(what: &str) -> Error {
    Error::config(
        ConfigIssue::Url,
        format!("{what}: write zk://user:password@host1:2181,host2:2181/chroot"),
    )
}

impl fmt::Debug for ZkConfig {
    /// Without the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let user = self.login.as_ref().and_then(|login| login.split(':').next());
        f.debug_struct("ZkConfig")
            .field("store", &self.store())
            .field("user", &user)
            .field("session_timeout", &self.session_timeout)
            .field("acl", &self.acl())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
