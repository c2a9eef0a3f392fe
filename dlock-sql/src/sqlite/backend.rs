//! The backend, and its factory for URLs.

use std::{sync::Arc, time::Duration};

use dlock_core::{DynBackend, Error, Factory, Scope, WakeUp, current_runtime};

use super::{SqliteConfig, open::open, queries};
use crate::engine::{Connections, DurabilityMonitor, Engine, EngineSettings, Rarely, guarantees};

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
/// Two statements take and release a free lock. A process that waits for a lock of another process
/// is notified of its grant by a datagram, to a socket beside the file, and also polls the file
/// every 20 to 100 ms. Without a socket it polls every 0.5 to 20 ms, less often in a longer wait.
/// There is no socket if the path is longer than about 85 bytes, on a file system without sockets,
/// on a system other than Unix, or on a runtime without I/O. A process without waiters never polls.
///
/// The file is in WAL mode with `synchronous = NORMAL`: a power failure may undo the last
/// operations. That breaks no lock, since all possible holders run on this machine and end with it,
/// and tokens continue from the clock.
///
/// Leases expire by this machine's real-time clock. If that clock is set forward, leases expire
/// early. Then only [fencing tokens](dlock_core::FencingToken) protect the resource.
#[derive(Debug)]
#[non_exhaustive]
pub enum Sqlite {}

impl Sqlite {
    /// Opens the file, and starts the tasks that work on it. The tasks end when the backend is
    /// dropped.
    ///
    /// # Errors
    /// `Config`: `Runtime` outside a tokio runtime; `SchemaMissing`, `SchemaNewer`, `ForeignStore`
    /// or `Access` if the file can't be used, if a right is missing that locks need later, or if
    /// the file has another name. Each message names the remedy. `Unavailable` if another program
    /// locks the file for too long.
    pub async fn open(config: SqliteConfig) -> Result<DynBackend, Error> {
        Self::start(config, Rarely::FILE).await
    }

    pub(super) async fn start(config: SqliteConfig, rarely: Rarely) -> Result<DynBackend, Error> {
        let with_context = |error: Error| {
            error.during("open").with_store(&format!("sqlite:{}", config.path.display()))
        };
        let runtime = current_runtime().map_err(with_context)?;
        let opened = open(&config).await.map_err(with_context)?;
        let store: Arc<str> = format!("sqlite:{}", opened.path.display()).into();
        let (listener, home) = opened.listener.unzip();
        let settings = EngineSettings {
            response_timeout: config.busy_timeout,
            retention: config.retention.max(MIN_RETENTION),
            tick: queries::TICK,
            // A read delays a process that wants to shorten the log.
            rest: 5,
            home: home.unwrap_or(0),
            rarely,
        };
        let wake_up = if listener.is_some() { WakeUp::Push } else { WakeUp::Poll };
        let guarantees = guarantees(Scope::Machine, wake_up);
        let connections = Connections {
            writers: vec![opened.writer],
            renewer: None,
            reader: opened.reader,
            listener,
            sample: None,
        };
        Ok(Arc::new(Engine::start(
            &runtime,
            store,
            guarantees,
            connections,
            settings,
            DurabilityMonitor::new(true),
        )))
    }
}
