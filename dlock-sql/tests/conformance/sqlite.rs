//! A file of SQLite.

use std::{path::PathBuf, time::Duration};

use async_trait::async_trait;
use dlock_core::{DynBackend, Error, LockName, machine::text};
use dlock_sql::{Sqlite, SqliteConfig};
use dlock_testkit::{Opened, Stop, Store};
use sqlx::{ConnectOptions, Row, SqliteConnection, sqlite::SqliteConnectOptions};
use tempfile::TempDir;

pub(crate) struct Files;

/// A separate file, which is removed in the end.
struct File {
    dir: TempDir,
}

#[async_trait]
impl Store for Files {
    fn name(&self) -> &str {
        "sqlite"
    }

    fn setting(&self) -> &str {
        "sqlite"
    }

    async fn open(&self) -> Result<Box<dyn Opened>, Stop> {
        Ok(Box::new(File { dir: tempfile::tempdir()? }))
    }

    async fn connect_to(&self, address: &str) -> Result<DynBackend, Error> {
        open(address).await
    }
}

#[async_trait]
impl Opened for File {
    async fn connect(&self) -> Result<DynBackend, Error> {
        open(self.path()).await
    }

    fn address(&self) -> Option<String> {
        self.path().to_str().map(str::to_owned)
    }

    async fn leftovers(&self, name: &LockName) -> Result<Vec<String>, Stop> {
        let row = sqlx::query(
            "SELECT snap, log, CAST((julianday('now') - 2440587.5) * 86400000000.0 AS INTEGER) \
             FROM dlock_lock WHERE name = ?1",
        )
        .bind(name.as_str())
        .fetch_optional(&mut self.raw().await?)
        .await?;
        let Some(row) = row else { return Ok(Vec::new()) };
        let machine = text::replay(row.get(0), row.get(1))?.machine;
        let now = u64::try_from(row.get::<i64, _>(2))?;
        // The row of a lock that is free may stay for a day.
        let state = machine.inspect(now);
        Ok(state.holders.iter().chain(&state.waiters).map(|claim| format!("{claim:?}")).collect())
    }

    async fn forget(&self, name: &LockName) -> Result<bool, Stop> {
        let query = sqlx::query("DELETE FROM dlock_lock WHERE name = ?1").bind(name.as_str());
        Ok(query.execute(&mut self.raw().await?).await?.rows_affected() == 1)
    }
}

/// A client with a long timeout, for a busy machine.
async fn open(path: impl Into<PathBuf>) -> Result<DynBackend, Error> {
    let config = SqliteConfig::new(path).with_create_schema(true);
    Sqlite::open(config.with_busy_timeout(Duration::from_secs(30))).await
}

impl File {
    fn path(&self) -> PathBuf {
        self.dir.path().join("locks.db")
    }

    async fn raw(&self) -> Result<SqliteConnection, Stop> {
        Ok(SqliteConnectOptions::new().filename(self.path()).connect().await?)
    }
}
