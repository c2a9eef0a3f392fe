//! The backend and how it is found by URL.

use std::{sync::Arc, time::Duration};

use dlock_core::{DynBackend, Error, Factory, Scope, WakeUp, current_runtime};

use super::{SqliteConfig, open::open, queries};
use crate::engine::{Engine, Kept, Links, Rarely, Settings, guarantees};

/// The shortest time for which an unused row is kept: some steps of the clock.
const MIN_RETENTION: Duration = Duration::from_millis(20);

/// The SQLite backend, for [`Registry`](dlock_core::Registry).
pub const SQLITE: Factory = Factory::new("SQLite", &["sqlite"], SqliteConfig::OPTIONS, |url| {
    Box::pin(async move {
        let config = SqliteConfig::from_url(&url)?;
        Sqlite::open(config).await
    })
});

/// Locks in a SQLite file, for the processes of one machine.
///
/// Two statements take and release a free lock. A process that waits for another one's lock is
/// told of its grant by a datagram, to a socket beside the file, and looks at the file every 20 to
/// 100 ms. Where there can be no socket it looks every 0.5 to 20 ms, the longer the wait the more
/// rarely: where the path is longer than some 85 bytes, on a file system that has none, on a system
/// that is no Unix, or on a runtime without I/O. A process that nobody waits in never looks.
///
/// The file is in WAL mode with `synchronous = NORMAL`: a power cut may undo the last
/// operations, which is no loss, since everybody who could hold a lock runs on this machine and
/// has died with it, and tokens go on from the clock.
///
/// Leases end by this machine's real-time clock. When that is set forward, leases end early: then
/// only [fencing tokens](dlock_core::FencingToken) protect what the lock protects.
#[derive(Debug)]
#[non_exhaustive]
pub enum Sqlite {}

impl Sqlite {
    /// Opens the file and starts the tasks that work on it, which end when the backend is dropped.
    ///
    /// # Errors
    /// `Config`: `Runtime` outside a tokio runtime; `SchemaMissing`, `SchemaNewer`, `ForeignStore`
    /// or `Access` when the file can't be used, also when a right is missing that locks need later, or
    /// the file has another name; each names its remedy. `Unavailable` when another
    /// program locks it for too long.
    pub async fn open(config: SqliteConfig) -> Result<DynBackend, Error> {
        Self::start(config, Rarely::FILE).await
    }

    pub(super) async fn start(config: SqliteConfig, rarely: Rarely) -> Result<DynBackend, Error> {
        let place = |error: Error| {
            error.during("open").with_store(&format!("sqlite:{}", config.path.display()))
        };
        let runtime = current_runtime().map_err(place)?;
        let opened = open(&config).await.map_err(place)?;
        let store: Arc<str> = format!("sqlite:{}", opened.path.display()).into();
        let (ears, home) = opened.ears.unzip();
        let settings = Settings {
            patience: config.patience,
            retention: config.retention.max(MIN_RETENTION),
            tick: queries::TICK,
            // A read holds up whoever wants to tidy the file up.
            rest: 5,
            home: home.unwrap_or(0),
            rarely,
            format: config.format,
        };
        let wake_up = if ears.is_some() { WakeUp::Push } else { WakeUp::Poll };
        let guarantees = guarantees(Scope::Machine, wake_up);
        let links = Links {
            writers: vec![opened.writer],
            keeper: None,
            reader: opened.reader,
            ears,
            sight: None,
        };
        Ok(Arc::new(Engine::start(&runtime, store, guarantees, links, settings, Kept::new(true))))
    }
}
