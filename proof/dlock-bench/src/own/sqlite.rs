//! The baseline of SQLite: the same two statements over one connection, in a file with the same
//! settings as dlock's.

use std::sync::Arc;

use sqlx::{
    ConnectOptions,
    sqlite::{SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqliteSynchronous},
};
use tokio::sync::Mutex;

use super::{
    once::{self, Once},
    sql::Does,
};
use crate::{
    Failure,
    subject::{Lock, Subject, Want, Witness},
};

const SCHEMA: &str = "CREATE TABLE IF NOT EXISTS baseline_lock (name TEXT PRIMARY KEY, \
    owner TEXT NOT NULL, until INTEGER NOT NULL) WITHOUT ROWID";
const TAKE: &str = "INSERT INTO baseline_lock (name, owner, until) \
    VALUES (?1, ?2, unixepoch() + 30) ON CONFLICT (name) \
    DO UPDATE SET owner = excluded.owner, until = excluded.until WHERE until < unixepoch()";
const RELEASE: &str = "UPDATE baseline_lock SET until = 0 WHERE name = ?1 AND owner = ?2";
const UPSERT: &str = "INSERT INTO baseline_lock (name, owner, until) \
    VALUES (?1, ?2, 0) ON CONFLICT (name) \
    DO UPDATE SET owner = excluded.owner, until = excluded.until";

/// A connection that all locks share, one at a time: a file has one writer.
#[derive(Clone, Debug)]
pub(super) struct SqliteBaseline {
    connection: Arc<Mutex<SqliteConnection>>,
    does: Does,
}

impl SqliteBaseline {
    pub(super) async fn connect(url: &str, does: Does) -> Result<Self, Failure> {
        let file = url.split('?').next().unwrap_or_default();
        let options = file.parse::<SqliteConnectOptions>()?;
        // A separate file, so that dlock and the baseline don't affect each other's log.
        let beside = options.get_filename().with_extension("baseline");
        let options = options
            .filename(beside)
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Normal);
        let mut connection = options.connect().await?;
        sqlx::query(SCHEMA).execute(&mut connection).await?;
        Ok(Self { connection: Arc::new(Mutex::new(connection)), does })
    }
}

/// Names that are acquired together.
#[derive(Debug)]
pub(super) struct SqliteBaselineLock {
    bare: SqliteBaseline,
    names: Vec<(String, String)>,
}

impl Subject for SqliteBaseline {
    type Lock = SqliteBaselineLock;

    async fn lock(&self, want: Want<'_>) -> Result<SqliteBaselineLock, Failure> {
        let names = self.does.names(&want)?;
        Ok(SqliteBaselineLock { bare: self.clone(), names })
    }

    async fn more(&self, words: &[&str]) -> Result<String, Failure> {
        once::more(self, words).await
    }
}

impl Once for SqliteBaseline {
    async fn once(&self, name: &str) -> Result<(), Failure> {
        self.lock(Want::One(name)).await?.cycle(&mut ()).await
    }
}

impl Lock for SqliteBaselineLock {
    async fn cycle<W: Witness>(&mut self, _witness: &mut W) -> Result<(), Failure> {
        let statements: &[&'static str] = match self.bare.does {
            Does::Lock => &[TAKE, RELEASE],
            Does::Row => &[UPSERT],
        };
        let mut connection = self.bare.connection.lock().await;
        for statement in statements {
            for (name, owner) in &self.names {
                let query = sqlx::query(*statement).bind(name).bind(owner);
                if query.execute(&mut *connection).await?.rows_affected() != 1 {
                    return Err("the baseline's lock is taken or lost".into());
                }
            }
        }
        Ok(())
    }
}
