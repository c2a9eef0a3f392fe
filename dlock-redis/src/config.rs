//! Which servers to talk to, and how.

use std::{fmt, path::PathBuf, str::FromStr, time::Duration};

use dlock_core::{BackendUrl, ConfigIssue, Error, Format, LockOptions};
use redis::ConnectionAddr;

mod client;
mod url;

/// A Redis or Valkey store: which servers, how to get in, and what it is to promise.
///
/// ```
/// use dlock_redis::{Durability, RedisConfig};
/// # fn main() -> Result<(), dlock_core::Error> {
/// let config = RedisConfig::from_url("redis+sentinel://:secret@s1,s2,s3/mymaster")?
///     .with_durability(Durability::Replicas(1));
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct RedisConfig {
    pub(crate) topology: Topology,
    /// `host:port`, or the path of a socket.
    pub(crate) addresses: Vec<String>,
    pub(crate) login: Login,
    /// Of the sentinels.
    pub(crate) sentinel_login: Login,
    pub(crate) database: i64,
    pub(crate) tls: Option<Tls>,
    /// The address as an application's client has it, with what TLS needs.
    pub(crate) given: Option<ConnectionAddr>,
    pub(crate) durability: Durability,
    pub(crate) retention: Duration,
    pub(crate) restart_guard: Option<Duration>,
    pub(crate) response_timeout: Duration,
    pub(crate) plain: bool,
    /// What all names begin with.
    pub(crate) prefix: String,
    pub(crate) format: Format,
}

/// How the servers belong together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Topology {
    /// One server, by TCP.
    Single,
    /// One server, by a Unix socket.
    Socket,
    /// The master of this name, which sentinels know.
    Sentinel(String),
    /// The nodes of a cluster.
    Cluster,
    /// Independent masters, of which a majority decides.
    Quorum,
}

#[derive(Clone, Default)]
pub(crate) struct Login {
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
}

/// Files with what TLS needs, in PEM.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tls {
    /// The authorities to trust instead of the system's.
    pub(crate) authorities: Option<PathBuf>,
    /// The client's own certificate and key.
    pub(crate) certificate: Option<(PathBuf, PathBuf)>,
}

/// How many replicas have to know of a grant before it counts.
///
/// A replica that knows of a grant keeps it when it takes over. Redis does not promise to promote
/// one that does, and renewals are not waited for, so this narrows the window in which a failover
/// lets two in, and does not close it: fencing tokens do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Durability {
    /// None: a grant is the master's word.
    #[default]
    Master,
    /// So many.
    Replicas(u32),
    /// So many that they and the master are more than half of the nodes known when connecting.
    Majority,
}

impl RedisConfig {
    /// The names of dlock's own options in a URL.
    pub const OPTIONS: &'static [&'static str] = &[
        "durability",
        "format",
        "plain",
        "response_timeout",
        "restart_guard",
        "retention",
        "sentinel_password",
        "sentinel_user",
        "tls_ca",
        "tls_cert",
        "tls_key",
    ];

    /// The schemes of its URLs.
    pub const SCHEMES: &'static [&'static str] = &[
        "redis",
        "rediss",
        "redis+unix",
        "redis+sentinel",
        "rediss+sentinel",
        "redis+cluster",
        "rediss+cluster",
        "redis+quorum",
        "rediss+quorum",
    ];

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
        Ok(config)
    }

    /// How many replicas have to know of a grant before it counts.
    #[must_use]
    pub const fn with_durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// How long the last token of a free lock is kept, 1 s to 24 h; 10 minutes by default. Tokens
    /// grow across its end as long as the server's clock does not step back by more.
    #[must_use]
    pub const fn with_retention(mut self, retention: Duration) -> Self {
        self.retention = retention;
        self
    }

    /// After the start of a server, which may have lost what it knew, nothing is granted for so
    /// long: the longest lease that anybody uses. It counts from when a client first saw this run of
    /// the server, by its monotonic clock. Off by default for one server; one default lease (30 s)
    /// for each master of a quorum, where `Duration::ZERO` turns it off.
    #[must_use]
    pub const fn with_restart_guard(mut self, guard: Duration) -> Self {
        self.restart_guard = Some(guard);
        self
    }

    /// How long an answer may take; 2 s by default.
    #[must_use]
    pub const fn with_response_timeout(mut self, timeout: Duration) -> Self {
        self.response_timeout = timeout;
        self
    }

    /// The lock that everybody knows, one key by `SET NAME value NX PX`: for the mutex only, with
    /// no queue and no fencing token that means anything, so that other programs can take part.
    #[must_use]
    pub const fn with_plain(mut self, plain: bool) -> Self {
        self.plain = plain;
        self
    }

    /// In which format records are written: the one that the version of dlock before this one reads,
    /// unless it is set to [`Format::NEWEST`] once no such program uses the server. All formats are
    /// read. `dlock.format` in a URL does the same.
    #[must_use]
    pub const fn with_format(mut self, format: Format) -> Self {
        self.format = format;
        self
    }

    /// The user may use no keys but those of names that begin with this, as all names have to
    /// ([`Prefixed`](dlock_core::Prefixed)): what connecting tries out is then done with such a key.
    /// `dlock.prefix` in a URL does the same.
    #[must_use]
    pub fn with_prefix(mut self, prefix: &str) -> Self {
        prefix.clone_into(&mut self.prefix);
        self
    }

    pub(crate) fn checked(self) -> Result<Self, Error> {
        let count = self.addresses.len();
        let range = |what: &str, time: Duration, from: Duration, to: Duration| {
            if time < from || time > to {
                return Err(value(&format!("dlock.{what} has to be {from:?} to {to:?}")));
            }
            Ok(())
        };
        range("retention", self.retention, Duration::from_secs(1), LockOptions::MAX_LEASE)?;
        let (shortest, longest) = (Duration::from_millis(10), Duration::from_secs(60));
        range("response_timeout", self.response_timeout, shortest, longest)?;
        let guard = self.restart_guard.unwrap_or_default();
        let (plain, durable) = (self.plain, self.durability != Durability::Master);
        let for_sentinels = &self.sentinel_login;
        if for_sentinels.user.is_some() && for_sentinels.password.is_none() {
            return Err(value("dlock.sentinel_user needs a dlock.sentinel_password"));
        }
        range("restart_guard", guard, Duration::ZERO, LockOptions::MAX_LEASE)?;
        match self.topology {
            Topology::Single if count > 1 => Err(malformed(
                "one server has one address: several are redis+cluster://, redis+sentinel:// or \
                 redis+quorum://",
            )),
            Topology::Quorum if count < 3 || count.is_multiple_of(2) => Err(malformed(
                "a quorum has three masters, or five, or seven: an even number of them bears no \
                 more failures than one less",
            )),
            Topology::Quorum if has_twins(&self.addresses) => {
                Err(malformed("a master stands twice in the quorum, and has one vote only"))
            }
            Topology::Quorum | Topology::Cluster if plain => Err(value(
                "dlock.plain is for one server or Sentinel: a cluster and a quorum have no plain \
                 form",
            )),
            Topology::Quorum if durable => Err(value(
                "dlock.durability is for replicas, which the masters of a quorum do without",
            )),
            Topology::Cluster if !guard.is_zero() => Err(value(
                "dlock.restart_guard is for one server, Sentinel and a quorum: the nodes of a \
                 cluster restart unseen",
            )),
            Topology::Cluster if self.database != 0 => {
                Err(malformed("a cluster has database 0 only"))
            }
            Topology::Single | Topology::Socket | Topology::Cluster | Topology::Quorum
                if for_sentinels.password.is_some() =>
            {
                Err(value("dlock.sentinel_* needs a redis+sentinel URL"))
            }
            _ if plain && durable => Err(value(
                "dlock.durability is not for the plain form (dlock.plain), which waits for no \
                 replica",
            )),
            _ => Ok(self),
        }
    }

    /// Kind and address without secrets.
    pub(crate) fn store(&self) -> String {
        let mut addresses = self.addresses.clone();
        addresses.sort();
        let addresses = addresses.join(",");
        let tls = if self.tls.is_some() { "s" } else { "" };
        let plain = if self.plain { " (plain)" } else { "" };
        let database = match self.database {
            0 => String::new(),
            n => format!("/{n}"),
        };
        match &self.topology {
            Topology::Single => format!("redis{tls}://{addresses}{database}{plain}"),
            Topology::Socket => format!("redis+unix://{addresses}{plain}"),
            Topology::Sentinel(master) => {
                format!("redis{tls}+sentinel://{addresses}/{master}{database}{plain}")
            }
            Topology::Cluster => format!("redis{tls}+cluster://{addresses}"),
            Topology::Quorum => format!("redis{tls}+quorum://{addresses}{database}"),
        }
    }
}

fn has_twins(addresses: &[String]) -> bool {
    addresses.iter().enumerate().any(|(at, address)| addresses[..at].contains(address))
}

/// A host and its port, as one address.
pub(crate) fn with_port(host: &str, port: impl fmt::Display) -> String {
    // An IPv6 address.
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// No message shows the URL, which may hold a password.
fn malformed(what: &str) -> Error {
    Error::config(
        ConfigIssue::Url,
        format!("{what}: write redis://user:password@host:6379/0 or another form of it"),
    )
}

fn value(what: &str) -> Error {
    Error::config(ConfigIssue::OptionValue, what.to_owned())
}

impl FromStr for Durability {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        match text {
            "master" => Ok(Self::Master),
            "majority" => Ok(Self::Majority),
            _ => match text.parse() {
                Ok(0) => Ok(Self::Master),
                Ok(replicas) if replicas <= 64 => Ok(Self::Replicas(replicas)),
                _ => Err(value(
                    "dlock.durability can't be read: write master, majority, or a number of \
                     replicas up to 64",
                )),
            },
        }
    }
}

impl fmt::Debug for RedisConfig {
    /// Without passwords.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisConfig")
            .field("store", &self.store())
            .field("user", &self.login.user)
            .field("durability", &self.durability)
            .field("retention", &self.retention)
            .field("restart_guard", &self.restart_guard)
            .field("response_timeout", &self.response_timeout)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
