//! Connects a URL to locks: the compiled-in backends, and the options that they share.

use dlock_core::{
    BackendUrl, ConfigIssue, DynBackend, Error, ErrorKind, Factory, LockName, LockOptions, Locks,
    Memory, Note, Noted, Prefixed, Registry, TokenOffset, Traced, current_runtime,
};

/// The options that every backend's URL accepts, without the prefix `dlock.`.
const SHARED: &[&str] = &["lease", "wait", "prefix", "token_offset"];

/// Connects to the store that `url` names, and returns the locks in it. Spaces and line ends around
/// the URL are ignored.
///
/// `memory:` is always available; each other backend is a Cargo feature of the same name
/// (`sqlite:locks.db?dlock.create_schema=true` needs `sqlite`). Every URL accepts these options:
///
/// | option | meaning | default |
/// |---|---|---|
/// | `dlock.lease` | how long the store keeps a lock for a holder that is dead or cut off: `100ms` to `24h`. On ZooKeeper at most half of `dlock.session_timeout`, on etcd two thirds; a warning reports a lease that was shortened to that | `30s` |
/// | `dlock.wait` | how long `lock()` waits; `0s` is one attempt | no limit |
/// | `dlock.prefix` | a prefix of every name, which counts towards the 512 bytes of a name | none |
/// | `dlock.token_offset` | a number that is added to every fencing token, at most 2^62: the largest token of another store that a resource has seen, so that the tokens of this store continue above it. All clients must use the same offset ([`TokenOffset`]) | `0` |
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
/// Before anything is opened: `Config(Url)` if the text is not a URL, `Config(UnknownScheme)`,
/// `Config(MissingFeature)` for a backend that is not compiled in, `Config(UnknownOption)`,
/// `Config(RepeatedOption)`, `Config(OptionValue)`, `Config(Lease)`, `Config(Name)` for a prefix
/// that no name can begin with, `Config(Note)`, and `Config(Runtime)` outside a tokio runtime.
/// After that, the errors of the store. No error shows a password.
///
/// # Cancel safety
/// Dropping the future closes everything that it has opened.
pub async fn connect(url: &str) -> Result<Locks, Error> {
    connect_with(url, ConnectOptions::new()).await
}

/// As [`connect`], with options that a URL can't contain.
///
/// ```
/// use dlock::ConnectOptions;
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), dlock::Error> {
/// let note = format!("web-3 pid {}", std::process::id());
/// let locks = dlock::connect_with("memory:", ConnectOptions::new().with_note(note)?).await?;
/// # Ok(()) }
/// ```
///
/// # Errors
/// As [`connect`].
///
/// # Cancel safety
/// As [`connect`].
pub async fn connect_with(url: &str, options: ConnectOptions) -> Result<Locks, Error> {
    let ConnectOptions { registry, note } = options;
    // A variable of the environment that comes from a file often ends with a line end.
    let mut url: BackendUrl = url.trim_ascii().parse()?;
    // This runs first, so that a missing backend is reported before one of its options.
    registry.factory(&url)?;
    let shared = Shared::take(&mut url)?;
    let url = url.with_prefix(shared.prefix.as_deref().unwrap_or_default());
    // Drivers may panic without a runtime, so this check comes before any driver is called.
    current_runtime()?;
    shared.apply(registry.connect(url, SHARED).await?, note)
}

/// The options of [`connect_with`]: what a program sets in its code rather than in the URL.
#[derive(Clone, Debug)]
pub struct ConnectOptions {
    registry: Registry,
    note: Option<Note>,
}

impl ConnectOptions {
    /// Returns options with the compiled-in backends and without a note.
    pub fn new() -> Self {
        Self { registry: registry(), note: None }
    }

    /// Adds a backend that the application defines. It replaces a backend with the same scheme.
    #[must_use]
    pub fn with_backend(self, factory: Factory) -> Self {
        Self { registry: self.registry.with(factory), ..self }
    }

    /// Puts this text on every claim of the locks, so that people can identify the owner of a
    /// claim: `web-3 pid 4711`. The store keeps the text with the claim if it supports notes
    /// ([`Notes`](dlock_core::Notes)). **No secrets**: everybody with read access to the store sees
    /// it.
    ///
    /// # Errors
    /// `Config(Note)` if the text is not a valid [`Note`].
    pub fn with_note<N>(self, note: N) -> Result<Self, Error>
    where
        N: TryInto<Note>,
        Error: From<N::Error>,
    {
        Ok(Self { note: Some(note.try_into()?), ..self })
    }
}

impl Default for ConnectOptions {
    fn default() -> Self {
        Self::new()
    }
}

/// Returns a registry of the compiled-in backends.
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
    #[cfg(feature = "etcd")]
    let registry = registry.with(dlock_etcd::FACTORY);
    #[cfg(not(feature = "etcd"))]
    let registry = registry.with_missing("etcd", "etcd").with_missing("etcds", "etcd");
    registry
}

/// The schemes of the feature `redis`, for the error of a build without it.
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

/// Adds the option's name to the error of its value.
fn of_option(name: &str, error: &Error) -> Error {
    let issue = match error.kind() {
        ErrorKind::Config(issue) => issue,
        _ => ConfigIssue::OptionValue,
    };
    Error::config(issue, format!("dlock.{name} in the URL: {error}"))
}

/// The values of the shared options.
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

    fn apply(self, backend: DynBackend, note: Option<Note>) -> Result<Locks, Error> {
        let backend: DynBackend = match self.prefix {
            Some(prefix) => Prefixed::new(backend, &prefix)?,
            None => backend,
        };
        let backend: DynBackend = match self.token_offset {
            0 => backend,
            offset => TokenOffset::new(backend, offset)?,
        };
        let backend: DynBackend = match note {
            Some(note) => Noted::new(backend, note),
            None => backend,
        };
        Locks::new(Traced::new(backend))?.with_options(self.options)
    }
}
