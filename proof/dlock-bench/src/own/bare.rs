//! A connection with the bare driver of a database: no pool, autocommit, and each statement prepared
//! once.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use sqlx::{
    ConnectOptions, Row,
    mysql::{MySqlConnectOptions, MySqlConnection},
    postgres::{PgConnectOptions, PgConnection},
    sqlite::{SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqliteSynchronous},
};

use crate::Failure;

/// The time after which an idle process of PostgreSQL reports its counts at the next opportunity. A
/// process reports them when it becomes idle, but at most once per second.
const UNTOLD: Duration = Duration::from_millis(1200);

/// The number of transactions, which are statements if each is a separate transaction.
const STATEMENTS: Statement = Statement {
    postgres: "SELECT (xact_commit + xact_rollback)::text FROM pg_stat_database \
               WHERE datname = current_database()",
    mysql: "SELECT CAST(variable_value AS CHAR) FROM information_schema.global_status \
            WHERE variable_name = 'QUESTIONS'",
    // It counts none.
    sqlite: "SELECT 'NaN'",
};

/// A statement in each dialect.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Statement {
    pub(crate) postgres: &'static str,
    pub(crate) mysql: &'static str,
    pub(crate) sqlite: &'static str,
}

/// A connection.
#[derive(Debug)]
pub(crate) enum BareConnection {
    Postgres(PgConnection),
    Mysql(MySqlConnection),
    Sqlite(SqliteConnection),
}

/// Evaluates an expression with the driver's connection and the statement in its dialect.
macro_rules! with_driver {
    ($this:ident, $text:ident, |$connection:ident, $sql:ident| $run:expr) => {
        match $this {
            Self::Postgres($connection) => {
                let $sql = $text.postgres;
                $run
            }
            Self::Mysql($connection) => {
                let $sql = $text.mysql;
                $run
            }
            Self::Sqlite($connection) => {
                let $sql = $text.sqlite;
                $run
            }
        }
    };
}

impl BareConnection {
    /// Connects to the database at this address, in the format of the drivers.
    pub(crate) async fn connect(url: &str) -> Result<Self, Failure> {
        Ok(match url.split(':').next() {
            Some("postgres") => Self::Postgres(url.parse::<PgConnectOptions>()?.connect().await?),
            Some("mysql") => Self::Mysql(url.parse::<MySqlConnectOptions>()?.connect().await?),
            _ => Self::Sqlite(url.parse::<SqliteConnectOptions>()?.connect().await?),
        })
    }

    /// Opens a file of SQLite with the settings that dlock uses, and creates it if it does not exist.
    pub(crate) async fn file(path: &Path) -> Result<Self, Failure> {
        let options = SqliteConnectOptions::new()
            .filename(path)
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Normal);
        Ok(Self::Sqlite(options.connect().await?))
    }

    /// Runs a statement. Returns the number of rows that it has changed.
    pub(crate) async fn run(&mut self, text: Statement, args: &[&str]) -> Result<u64, Failure> {
        Ok(with_driver!(self, text, |connection, sql| {
            let query = args.iter().fold(sqlx::query(sql), |query, arg| query.bind(*arg));
            query.execute(connection).await?.rows_affected()
        }))
    }

    /// Runs a query of one text.
    pub(crate) async fn text(&mut self, text: Statement) -> Result<String, Failure> {
        Ok(with_driver!(self, text, |connection, sql| {
            let rows = sqlx::query(sql).fetch_all(connection).await?;
            rows.first().ok_or("a statement without an answer")?.try_get(0)?
        }))
    }

    /// Runs a query of one number.
    pub(crate) async fn number(&mut self, text: Statement) -> Result<f64, Failure> {
        Ok(with_driver!(self, text, |connection, sql| {
            sqlx::query_scalar(sql).fetch_one(connection).await?
        }))
    }

    /// Returns the number of statements that the server has run. The latest ones are missing until
    /// each counted connection has run at least one more statement after [`Self::settle`].
    pub(crate) async fn statements(&mut self) -> Result<f64, Failure> {
        Ok(self.text(STATEMENTS).await?.parse()?)
    }

    /// Waits until the next action of a connection makes the server report its counts.
    pub(crate) async fn settle(&self) {
        if let Self::Postgres(_) = self {
            tokio::time::sleep(UNTOLD).await;
        }
    }
}

/// Returns the file of this URL with another extension, so that dlock and a baseline do not affect
/// each other's log.
pub(crate) fn file_beside(url: &str, extension: &str) -> Result<PathBuf, Failure> {
    let file = url.split('?').next().unwrap_or_default();
    Ok(file.parse::<SqliteConnectOptions>()?.get_filename().with_extension(extension))
}
