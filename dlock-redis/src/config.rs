//! The configuration of a Redis or Valkey store.

use std::{fmt, str::FromStr, time::Duration};

use dlock_core::{BackendUrl, ConfigIssue, Error, LockOptions, TlsFiles};
use redis::ConnectionAddr;

mod client;
mod url;

/// The configuration of a Redis or Valkey store: its servers, the login, and the guarantees to ask
/// for.
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
    /// The login for the sentinels.
    pub(crate) sentinel_login: Login,
    pub(crate) database: i64,
    pub(crate) tls: Option<TlsFiles>,
    /// The address of an application's client, with its TLS settings.
    pub(crate) given: Option<ConnectionAddr>,
    pub(crate) durability: Durability,
    pub(crate) restart_guard: Option<Duration>,
    pub(crate) response_timeout: Duration,
    pub(crate) plain: bool,
    /// The prefix of all names.
    pub(crate) prefix: String,
}

/// How the servers work together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Topology {
    /// One server, over TCP.
    Single,
    /// One server, over a Unix socket.
    Socket,
    /// The master with this name, which the sentinels report.
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

/// The number of replicas that must know of a grant before it counts.
///
/// A replica that knows of a grant keeps it when it takes over. Renewals wait for replicas as well,
/// so that such a replica ends no lease earlier than its holder does; if too few replicas answer for
/// a whole lease, holders lose their locks. But Redis does not promise to promote a replica that
/// knows of the grant. So durability narrows the window in which a failover may grant a lock twice,
/// but does not close it. Fencing tokens do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Durability {
    /// None: a grant counts as soon as the master answers.
    #[default]
    Master,
    /// This number of replicas.
    Replicas(u32),
    /// As many as are needed so that they and the master are more than half of the nodes. The largest
    /// number of replicas counts that this client has seen since it connected, because a failover
    /// leaves the new master with few of them for a while. Behind sentinels and in a cluster, a
    /// connect fails with `Unavailable` if the master has none.
    Majority,
}

impl RedisConfig {
    /// The names of dlock's own options in a URL, without `dlock.`.
    pub const OPTIONS: &'static [&'static str] = &[
        "durability",
        "plain",
        "response_timeout",
        "restart_guard",
        "sentinel_password",
        "sentinel_user",
        "tls_ca",
        "tls_cert",
        "tls_key",
    ];

    /// The schemes of the URLs.
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
        Ok(config)
    }

    /// Sets the number of replicas that must know of a grant before it counts.
    #[must_use]
    pub const fn with_durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// Sets the restart guard: how long nothing is granted after a server starts, since the server
    /// may have lost its data. Set it to the longest lease in use. The time starts when a client
    /// first sees this run of the server, and is measured by the client's monotonic clock. By
    /// default it is off for one server, and one default lease (30 s) for each master of a quorum,
    /// where `Duration::ZERO` turns it off.
    #[must_use]
    pub const fn with_restart_guard(mut self, guard: Duration) -> Self {
        self.restart_guard = Some(guard);
        self
    }

    /// Sets how long to wait for the answer to a request; 2 s by default.
    #[must_use]
    pub const fn with_response_timeout(mut self, timeout: Duration) -> Self {
        self.response_timeout = timeout;
        self
    }

    /// Uses the plain form: a mutex is one key, taken by `SET NAME value NX PX`, so that other
    /// programs can take part. It supports the mutex only, has no queue, and its fencing tokens
    /// mean nothing.
    #[must_use]
    pub const fn with_plain(mut self, plain: bool) -> Self {
        self.plain = plain;
        self
    }

    /// Sets the prefix that all names have ([`Prefixed`](dlock_core::Prefixed)), for a user that
    /// may only use the keys of such names. When dlock connects, it then tries out the commands on
    /// a key with this prefix. `dlock.prefix` in a URL does the same.
    #[must_use]
    pub fn with_prefix(mut self, prefix: &str) -> Self {
        prefix.clone_into(&mut self.prefix);
        self
    }

    pub(crate) fn checked(self) -> Result<Self, Error> {
        let count = self.addresses.len();
        let range = BackendUrl::within;
        let (shortest, longest) = (Duration::from_millis(10), Duration::from_secs(60));
        range("response_timeout", self.response_timeout, shortest, longest)?;
        let guard = self.restart_guard.unwrap_or_default();
        let (plain, durable) = (self.plain, self.durability != Durability::Master);
        let for_sentinels = &self.sentinel_login;
        if for_sentinels.user.is_some() && for_sentinels.password.is_none() {
            return Err(value("dlock.sentinel_user needs a password: set dlock.sentinel_password"));
        }
        range("restart_guard", guard, Duration::ZERO, LockOptions::MAX_LEASE)?;
        match self.topology {
            Topology::Single if count > 1 => Err(malformed(
                "this scheme takes one address: for several use redis+cluster://, \
                 redis+sentinel:// or redis+quorum://",
            )),
            Topology::Quorum if count < 3 || count.is_multiple_of(2) => Err(malformed(
                "a quorum has three, five or seven masters, since an even number tolerates no more \
                 failures than one less",
            )),
            Topology::Quorum if has_twins(&self.addresses) => {
                Err(malformed("a master is given twice in the quorum, but has only one vote"))
            }
            Topology::Quorum | Topology::Cluster if plain => Err(value(
                "a cluster and a quorum have no plain form: use dlock.plain with one server or \
                 Sentinel",
            )),
            Topology::Quorum if durable => {
                Err(value("the masters of a quorum need no replicas: remove dlock.durability"))
            }
            Topology::Cluster if !guard.is_zero() => Err(value(
                "dlock can't notice that the nodes of a cluster restart: use dlock.restart_guard \
                 with one server, Sentinel or a quorum",
            )),
            Topology::Cluster if self.database != 0 => {
                Err(malformed("a cluster has database 0 only"))
            }
            Topology::Single | Topology::Socket | Topology::Cluster | Topology::Quorum
                if for_sentinels.password.is_some() =>
            {
                Err(value(
                    "sentinels are asked only by redis+sentinel://: use that scheme, or remove \
                     dlock.sentinel_*",
                ))
            }
            _ if plain && durable => Err(value(
                "the plain form (dlock.plain) does not wait for replicas: remove dlock.durability",
            )),
            _ => Ok(self),
        }
    }

    /// Returns the kind and the address of the store, without secrets.
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
            Topology::Socket => {
                let database = database.replace('/', "?db=");
                format!("redis+unix://{addresses}{database}{plain}")
            }
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

/// Formats a host and its port as one address.
pub(crate) fn with_port(host: &str, port: impl fmt::Display) -> String {
    // An IPv6 address.
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// Returns the error of a malformed URL. No message shows the URL, which may contain a password.
fn malformed(what: &str) -> Error {
    Error::config(
        ConfigIssue::Url,
        format!(
            "{what}: write redis://user:password@host:6379/0 or one of the other forms; {}",
            BackendUrl::ENCODE
        ),
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
    /// Prints the configuration without logins.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisConfig")
            .field("store", &self.store())
            .field("durability", &self.durability)
            .field("restart_guard", &self.restart_guard)
            .field("response_timeout", &self.response_timeout)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
