//! The baseline of databases: the cost of a minimal lock with the bare driver.
//!
//! A row with an owner and an end. One upsert acquires the lock if the end has passed, and one
//! update with a check of the owner releases it. It has no queue, no token, no renewal and no
//! retry.

use std::sync::Arc;

use tokio::sync::Mutex;

use super::{
    NO_WAIT, Own,
    bare::{BareConnection, Statement, file_beside},
    once::{self, Once},
};
use crate::{
    Failure,
    subject::{Lock, Subject, Want, Witness},
};

const SCHEMA: Statement = Statement {
    postgres: "CREATE TABLE IF NOT EXISTS baseline_lock (name text COLLATE \"C\" PRIMARY KEY, \
               owner text NOT NULL, until timestamptz NOT NULL) WITH (fillfactor = 50)",
    mysql: "CREATE TABLE IF NOT EXISTS baseline_lock (name VARBINARY(255) PRIMARY KEY, \
            owner VARBINARY(64) NOT NULL, until DATETIME(6) NOT NULL) ENGINE = InnoDB",
    sqlite: "CREATE TABLE IF NOT EXISTS baseline_lock (name TEXT PRIMARY KEY, \
             owner TEXT NOT NULL, until INTEGER NOT NULL) WITHOUT ROWID",
};

const TAKE: Statement = Statement {
    postgres: "INSERT INTO baseline_lock AS f (name, owner, until) \
               VALUES ($1, $2, now() + interval '30 s') \
               ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, until = excluded.until \
               WHERE f.until < now()",
    mysql: "INSERT INTO baseline_lock (name, owner, until) \
            VALUES (?, ?, UTC_TIMESTAMP(6) + INTERVAL 30 SECOND) ON DUPLICATE KEY UPDATE \
            owner = IF(until < UTC_TIMESTAMP(6), VALUES(owner), owner), \
            until = IF(until < UTC_TIMESTAMP(6), VALUES(until), until)",
    sqlite: "INSERT INTO baseline_lock (name, owner, until) VALUES (?1, ?2, unixepoch() + 30) \
             ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, until = excluded.until \
             WHERE until < unixepoch()",
};

const RELEASE: Statement = Statement {
    postgres: "UPDATE baseline_lock SET until = '-infinity' WHERE name = $1 AND owner = $2",
    mysql: "UPDATE baseline_lock SET until = '2000-01-01' WHERE name = ? AND owner = ?",
    sqlite: "UPDATE baseline_lock SET until = 0 WHERE name = ?1 AND owner = ?2",
};

/// Writes a row, whatever its previous content.
const UPSERT: Statement = Statement {
    postgres: "INSERT INTO baseline_lock (name, owner, until) VALUES ($1, $2, now()) \
               ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, until = excluded.until",
    mysql: "INSERT INTO baseline_lock (name, owner, until) VALUES (?, ?, UTC_TIMESTAMP(6)) \
            ON DUPLICATE KEY UPDATE owner = VALUES(owner), until = VALUES(until)",
    sqlite: "INSERT INTO baseline_lock (name, owner, until) VALUES (?1, ?2, 0) \
             ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, until = excluded.until",
};

/// The maximum number of connections to a server. The driver does not pipeline, so many tasks need
/// several connections; more than this number only make the server slower. A file has one writer.
const CONNECTIONS: usize = 32;

/// The work of a cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Does {
    /// Acquires and releases a lock.
    Lock,
    /// Writes a row.
    Row,
}

/// Connections that the locks share, each used by one lock at a time.
#[derive(Clone, Debug)]
pub(super) struct SqlBaseline {
    url: String,
    does: Does,
    connections: Arc<Mutex<Shared>>,
}

/// The connections, opened on demand.
#[derive(Debug, Default)]
struct Shared {
    all: Vec<Arc<Mutex<BareConnection>>>,
    next: usize,
}

impl SqlBaseline {
    pub(super) async fn connect(url: &str, own: Own) -> Result<Self, Failure> {
        let does = if own == Own::Row { Does::Row } else { Does::Lock };
        let bare = Self { url: url.to_owned(), does, connections: Arc::default() };
        bare.connection().await?.lock().await.run(SCHEMA, &[]).await?;
        bare.connections.lock().await.next = 0;
        Ok(bare)
    }

    async fn connection(&self) -> Result<Arc<Mutex<BareConnection>>, Failure> {
        let mut shared = self.connections.lock().await;
        let is_file = self.url.starts_with("sqlite:");
        let at = if is_file { 0 } else { shared.next % CONNECTIONS };
        if at == shared.all.len() {
            let new = match is_file {
                true => BareConnection::file(&file_beside(&self.url, "baseline")?).await?,
                false => BareConnection::connect(&self.url).await?,
            };
            shared.all.push(Arc::new(Mutex::new(new)));
        }
        shared.next += 1;
        Ok(Arc::clone(&shared.all[at]))
    }

    /// Returns the names of a cycle, each with its owner.
    fn names(&self, want: &Want<'_>) -> Result<Vec<(String, String)>, Failure> {
        let names: Vec<&str> = match want {
            Want::One(name) => vec![name],
            Want::All(names) => names.iter().map(String::as_str).collect(),
            Want::Fair(name) if self.does == Does::Row => vec![name],
            Want::Fair(_) | Want::Read(_) | Want::Write(_) => return Err(NO_WAIT.into()),
        };
        Ok(names.into_iter().map(|name| (name.to_owned(), owner(name))).collect())
    }
}

/// Returns an owner that is as long as the ids of a real lock.
pub(super) fn owner(name: &str) -> String {
    format!("{:032x}", name.len())
}

/// Names that use one connection together.
#[derive(Debug)]
pub(super) struct SqlBaselineLock {
    connection: Arc<Mutex<BareConnection>>,
    does: Does,
    names: Vec<(String, String)>,
}

impl Subject for SqlBaseline {
    type Lock = SqlBaselineLock;

    async fn lock(&self, want: Want<'_>) -> Result<SqlBaselineLock, Failure> {
        let names = self.names(&want)?;
        Ok(SqlBaselineLock { connection: self.connection().await?, does: self.does, names })
    }

    async fn more(&self, words: &[&str]) -> Result<String, Failure> {
        once::more(self, words).await
    }
}

impl Once for SqlBaseline {
    async fn once(&self, name: &str) -> Result<(), Failure> {
        self.lock(Want::One(name)).await?.cycle(&mut ()).await
    }
}

impl Lock for SqlBaselineLock {
    async fn cycle<W: Witness>(&mut self, _witness: &mut W) -> Result<(), Failure> {
        let statements: &[Statement] = match self.does {
            Does::Lock => &[TAKE, RELEASE],
            Does::Row => &[UPSERT],
        };
        let mut connection = self.connection.lock().await;
        for statement in statements {
            for (name, owner) in &self.names {
                if connection.run(*statement, &[name, owner]).await? == 0 {
                    return Err("the baseline's lock is taken or lost".into());
                }
            }
        }
        Ok(())
    }
}
