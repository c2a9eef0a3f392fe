//! The backend, and its factory for URLs.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use dlock_core::{
    ConfigIssue, DynBackend, Error, ErrorKind, Factory, Scope, WakeUp, current_runtime,
};
use sqlx::{ConnectOptions as _, SqliteConnection, sqlite::SqliteConnectOptions};

use super::{
    SqliteConfig,
    config::check_path,
    conn::SqliteConn,
    error::classify,
    examine::text,
    file::{OpenFiles, check_alias, no_access, probe_reads, probe_writes},
    push::{Notifier, SqliteListener, listener},
    queries,
    schema::prepare,
};
use crate::engine::{
    Connections, DurabilityMonitor, Engine, EngineSettings, Fault, Rarely, RetryBudget, guarantees,
    retry,
};

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

/// The number of rows that the driver may buffer: those of a statement of renewals, and its end.
const ROWS: usize = 512;

/// The oldest supported library: strict tables came with 3.37, the operator `->>` with 3.38.
const OLDEST: (u32, u32) = (3, 38);

/// An open file.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) path: PathBuf,
    pub(super) writer: SqliteConn,
    pub(super) reader: SqliteConn,
    /// The listener and its home.
    pub(super) listener: Option<(SqliteListener, u32)>,
}

/// Opens the file. Several processes may do so at once, even the first time.
pub(super) async fn open(config: &SqliteConfig) -> Result<Opened, Error> {
    let path = locate(config)?;
    // The working directory may change.
    let given = std::path::absolute(&config.path).map_err(|error| no_access(&path, error))?;
    let options = SqliteConnectOptions::new()
        .filename(&path)
        .create_if_missing(config.create_schema)
        // SQLite itself waits in steps of up to 100 ms. The engine's retries are as short as a
        // statement.
        .busy_timeout(Duration::ZERO)
        // So that the driver's thread does not wait until the task has taken the rows of many
        // renewals.
        .row_buffer_size(ROWS)
        .disable_statement_logging();
    // Not opened read-only: the last connection that closes must be able to remove the log.
    let reads = options.clone().create_if_missing(false).pragma("query_only", "ON");

    let (writer, reader) = retry!(
        RetryBudget::of(config.busy_timeout),
        connect(&options, &reads, config.create_schema).await
    )?;
    // Only now is the file certain to exist.
    let path = path.canonicalize().map_err(|error| no_access(&path, error))?;
    check_alias(&path)?;
    let files = OpenFiles::of(&path, &given).map_err(|error| no_access(&path, error))?;
    // A later connection must not create a new file if this one was removed.
    let [options, reads] =
        [options, reads].map(|options| options.filename(&path).create_if_missing(false));
    let writer = SqliteConn::new(options, writer, files.clone());
    let reader = SqliteConn::new(reads, reader, files).with_notifier(Notifier::new(&path));
    let listener = listener(&path).await;
    Ok(Opened { path, writer, reader, listener })
}

async fn connect(
    options: &SqliteConnectOptions,
    reads: &SqliteConnectOptions,
    create: bool,
) -> Result<(SqliteConnection, SqliteConnection), Fault> {
    let mut writer = options.connect().await.map_err(classify)?;
    check_library(&text(&mut writer, queries::LIBRARY).await?)?;
    prepare(&mut writer, create).await?;
    probe_writes(&mut writer).await?;
    let journal = text(&mut writer, queries::JOURNAL).await?;
    if journal == "wal" {
        sqlx::raw_sql(queries::SYNC_NORMAL).execute(&mut writer).await.map_err(classify)?;
    } else {
        tracing::warn!(target: "dlock", journal, "database not in WAL mode: locks will be slow");
    }
    let mut reader = reads.connect().await.map_err(classify)?;
    probe_reads(&mut reader).await?;
    Ok((writer, reader))
}

/// Refuses a library that is too old. The driver brings one, and a build can replace it with the
/// system's (`LIBSQLITE3_SYS_USE_PKG_CONFIG`).
fn check_library(version: &str) -> Result<(), Error> {
    let mut numbers = version.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
    let (major, minor) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if (major, minor) >= OLDEST {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::Unsupported,
        format!(
            "the program is linked with SQLite {version:.20}, which lacks strict tables or the \
             operator ->>: use SQLite 3.38 or later, as the driver brings it"
        ),
    ))
}

/// Returns the absolute path. SQLite can't mistake it for anything but a path, and it stays the
/// same if the program changes its directory.
fn locate(config: &SqliteConfig) -> Result<PathBuf, Error> {
    check_path(&config.path)?;
    let path = &config.path;
    let name = path.file_name().ok_or_else(|| {
        no_access(path, io::Error::new(io::ErrorKind::IsADirectory, "it names a directory"))
    })?;
    let dir = match path.parent() {
        Some(dir) if dir != Path::new("") => dir,
        _ => Path::new("."),
    };
    let dir = dir.canonicalize().map_err(|error| no_access(dir, error))?;
    let path = dir.join(name);
    match path.metadata() {
        Ok(found) if found.is_dir() => {
            Err(no_access(&path, io::Error::new(io::ErrorKind::IsADirectory, "it is a directory")))
        }
        Ok(found) if !found.is_file() => {
            let error = io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file");
            Err(no_access(&path, error))
        }
        Ok(_) => {
            // The path is resolved before SQLite looks for its log, since another name would lead
            // to another log.
            let canonical = path.canonicalize().map_err(|error| no_access(&path, error))?;
            check_alias(&canonical)?;
            Ok(path)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound && config.create_schema => Ok(path),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let text = format!(
                "there is no file {}: check the path, or open it with create_schema \
                 (dlock.create_schema=true), which makes it",
                path.display()
            );
            Err(Error::config(ConfigIssue::SchemaMissing, text).with_source(error))
        }
        Err(error) => Err(no_access(&path, error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_library_is_refused_with_its_version() {
        for version in ["3.37.2", "2.8.17", ""] {
            let error = check_library(version).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            for part in [version, "3.38 or later"] {
                assert!(error.to_string().contains(part), "{error}");
            }
        }
        for version in ["3.38.0", "3.51.1", "4.0"] {
            assert!(check_library(version).is_ok(), "{version}");
        }
    }
}
