//! From a URL to locks: the backends that are compiled in, and the options they share.

use dlock_core::{
    BackendUrl, ConfigIssue, DynBackend, Error, ErrorKind, LockName, LockOptions, Locks, Memory,
    Prefixed, Registry, TokenOffset, Traced, current_runtime,
};

/// The options that every backend's URL can have, without what they begin with.
const SHARED: &[&str] = &["lease", "wait", "prefix", "token_offset"];

/// Connects to the store that `url` names, and gives the locks in it.
///
/// `memory:` is always there; each other backend is a Cargo feature of the same name
/// (`sqlite:locks.db?dlock.create_schema=true` needs `sqlite`). Every URL can have these options:
///
/// | option | meaning | default |
/// |---|---|---|
/// | `dlock.lease` | how long the store keeps a lock for a holder that is dead or cut off: `100ms` to `24h`, and on ZooKeeper half of `dlock.session_timeout` at most, which is told with a warning | `30s` |
/// | `dlock.wait` | how long `lock()` waits; `0s` is one attempt | for ever |
/// | `dlock.prefix` | stands before every name, and counts against its 512 bytes | none |
/// | `dlock.format` | in which [format](crate::Format) the store's records are written: `1`, which the version of dlock before this one reads, or `2`, once no such program uses the store. All formats are read | `1` |
/// | `dlock.token_offset` | is added to every fencing token, at most 2^62: the largest token that a resource has seen of another store, so that this one goes on above it; the same for all clients ([`TokenOffset`]) | `0` |
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), dlock::Error> {
/// let locks = dlock::connect("memory:?dlock.lease=10s&dlock.prefix=shop/").await?;
/// let guard = locks.mutex("inventory/42")?.lock().await?;
/// guard.release().await?;
/// # Ok(()) }
/// ```
///
/// # Errors
/// Before anything is opened: `Config(Url)` for what is no URL, `Config(UnknownScheme)`,
/// `Config(MissingFeature)` for a backend that is not compiled in, `Config(UnknownOption)`,
/// `Config(RepeatedOption)`, `Config(OptionValue)`, `Config(Lease)`, `Config(Name)` for a prefix
/// that no name can begin with, and `Config(Runtime)` outside a tokio runtime. Then whatever the
/// store has to say. No error shows a password.
///
/// # Cancel safety
/// Dropping the future closes what it has opened.
pub async fn connect(url: &str) -> Result<Locks, Error> {
    connect_with(&registry(), url).await
}

/// [`connect`] over these backends, for an application that brings one of its own:
/// `connect_with(&dlock::registry().with(MY_FACTORY), url)`.
///
/// # Errors
/// As [`connect`].
///
/// # Cancel safety
/// As [`connect`].
pub async fn connect_with(registry: &Registry, url: &str) -> Result<Locks, Error> {
    let mut url: BackendUrl = url.parse()?;
    // Asked first, so that a missing backend is not hidden behind one of its options.
    registry.factory(&url)?;
    let shared = Shared::take(&mut url)?;
    let url = url.with_prefix(shared.prefix.as_deref().unwrap_or_default());
    // Drivers may panic without a runtime, so none is called without one.
    current_runtime()?;
    shared.apply(registry.connect(url, SHARED).await?)
}

/// The backends that are compiled in.
pub fn registry() -> Registry {
    let registry = Registry::new().with(Memory::FACTORY);
    #[cfg(feature = "sqlite")]
    let registry = registry.with(dlock_sql::SQLITE);
    #[cfg(not(feature = "sqlite"))]
    let registry = registry.with_missing("sqlite", "sqlite");
    #[cfg(feature = "postgres")]
    let registry = registry.with(dlock_sql::POSTGRES);
    #[cfg(not(feature = "postgres"))]
    let registry =
        registry.with_missing("postgres", "postgres").with_missing("postgresql", "postgres");
    #[cfg(feature = "mysql")]
    let registry = registry.with(dlock_sql::MYSQL);
    #[cfg(not(feature = "mysql"))]
    let registry = registry.with_missing("mysql", "mysql").with_missing("mariadb", "mysql");
    #[cfg(feature = "redis")]
    let registry = registry.with(dlock_redis::REDIS);
    #[cfg(not(feature = "redis"))]
    let registry = REDIS_SCHEMES
        .iter()
        .fold(registry, |registry, scheme| registry.with_missing(scheme, "redis"));
    #[cfg(feature = "zk")]
    let registry = registry.with(dlock_zk::ZK);
    #[cfg(not(feature = "zk"))]
    let registry = registry.with_missing("zk", "zk").with_missing("zks", "zk");
    registry
}

/// What `redis` would know.
#[cfg(not(feature = "redis"))]
const REDIS_SCHEMES: [&str; 9] = [
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

/// The error of an option's value, with the option's name.
fn of_option(name: &str, error: &Error) -> Error {
    let issue = match error.kind() {
        ErrorKind::Config(issue) => issue,
        _ => ConfigIssue::OptionValue,
    };
    Error::config(issue, format!("dlock.{name} in the URL: {error}"))
}

/// What the shared options say.
struct Shared {
    options: LockOptions,
    prefix: Option<String>,
    token_offset: u64,
}

impl Shared {
    /// Takes them out of the URL and checks them, without I/O.
    fn take(url: &mut BackendUrl) -> Result<Self, Error> {
        let mut options = LockOptions::new();
        if let Some(lease) = url.take_duration("lease")? {
            options = options.with_lease(lease);
        }
        if let Some(wait) = url.take_duration("wait")? {
            options = options.with_wait(wait);
        }
        options.check().map_err(|error| of_option("lease", &error))?;
        let prefix = url.take("prefix");
        if let Some(prefix) = &prefix {
            LockName::new(prefix).map_err(|error| of_option("prefix", &error))?;
        }
        let token_offset = url.take_number("token_offset", TokenOffset::MAX)?.unwrap_or_default();
        Ok(Self { options, prefix, token_offset })
    }

    fn apply(self, backend: DynBackend) -> Result<Locks, Error> {
        let backend: DynBackend = match self.prefix {
            Some(prefix) => Prefixed::new(backend, &prefix)?,
            None => backend,
        };
        let backend: DynBackend = match self.token_offset {
            0 => backend,
            offset => TokenOffset::new(backend, offset)?,
        };
        Locks::over(Traced::new(backend))?.with_options(self.options)
    }
}
