//! Helpers of the tests: a file, its clients, and direct access to its tables.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use dlock_core::{AcquireRequest, DynBackend, Grant, Mode};
use dlock_sql::{Sqlite, SqliteConfig};
use dlock_testlab::client;
pub(crate) use dlock_testlab::client::{LEASE, attempt, exclusive, name};
use sqlx::{ConnectOptions, Row, SqliteConnection, sqlite::SqliteConnectOptions};
use tempfile::TempDir;

pub(crate) const SHORT: Duration = Duration::from_millis(150);

/// Longer than these tests take, even on a busy machine.
pub(crate) const LONG: Duration = Duration::from_secs(60);

pub(crate) struct Store {
    dir: TempDir,
}

impl Store {
    pub(crate) fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.dir.path().join("locks.db")
    }

    pub(crate) fn config(&self) -> SqliteConfig {
        SqliteConfig::new(self.path()).with_create_schema(true)
    }

    pub(crate) async fn open(&self) -> DynBackend {
        Sqlite::open(self.config()).await.unwrap()
    }

    /// A connection of another program.
    pub(crate) async fn raw(&self) -> SqliteConnection {
        raw(&self.path()).await
    }

    /// Returns the rows of the file: name, snapshot and log.
    pub(crate) async fn rows(&self) -> Vec<(String, String, String)> {
        let rows = sqlx::query("SELECT name, snap, log FROM dlock_lock ORDER BY name")
            .fetch_all(&mut self.raw().await)
            .await
            .unwrap();
        rows.iter().map(|row| (row.get(0), row.get(1), row.get(2))).collect()
    }
}

/// A connection to this file, without dlock.
pub(crate) async fn raw(path: &Path) -> SqliteConnection {
    SqliteConnectOptions::new().filename(path).connect().await.unwrap()
}

/// A connection to a file that it creates.
pub(crate) async fn raw_new(path: &Path) -> SqliteConnection {
    let options = SqliteConnectOptions::new().filename(path).create_if_missing(true);
    options.connect().await.unwrap()
}

pub(crate) fn ask(lock: &str, mode: Mode, lease: Duration) -> AcquireRequest {
    AcquireRequest::new(name(lock), mode, lease)
}

/// Acquires a lock that must be free.
pub(crate) async fn take(client: &DynBackend, request: &AcquireRequest) -> Grant {
    client::take(client, request).await.unwrap()
}

/// Joins the queue of a lock that must not be free.
pub(crate) async fn queue(client: &DynBackend, request: &AcquireRequest) {
    client::queue(client, request).await.unwrap();
}

/// Acquires a lock, and waits for it.
pub(crate) async fn lock(client: &DynBackend, request: &AcquireRequest) -> Grant {
    client::lock(client, request).await.unwrap()
}

pub(crate) async fn granted(client: &DynBackend, request: &AcquireRequest) -> Grant {
    client::granted(client, request).await.unwrap()
}

pub(crate) async fn free(client: &DynBackend, request: &AcquireRequest) {
    client::free(client, request).await.unwrap();
}
