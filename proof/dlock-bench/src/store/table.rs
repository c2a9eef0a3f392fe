//! The table of dlock's locks in a database, read with the bare driver.

use sqlx::{
    ConnectOptions,
    mysql::{MySqlConnectOptions, MySqlConnection},
    postgres::{PgConnectOptions, PgConnection},
    sqlite::{SqliteConnectOptions, SqliteConnection},
};

use crate::Failure;

/// A query of one number in each dialect.
#[derive(Clone, Copy, Debug)]
struct NumberQuery {
    postgres: &'static str,
    mysql: &'static str,
    sqlite: &'static str,
}

const ROWS: NumberQuery = NumberQuery {
    postgres: "SELECT count(*)::float8 FROM dlock_lock",
    mysql: "SELECT COUNT(*) + 0e0 FROM dlock_lock",
    sqlite: "SELECT CAST(count(*) AS REAL) FROM dlock_lock",
};

const LARGEST: NumberQuery = NumberQuery {
    postgres: "SELECT coalesce(max(octet_length(snap) + octet_length(log)), 0)::float8 \
               FROM dlock_lock",
    mysql: "SELECT COALESCE(MAX(LENGTH(snap) + LENGTH(log)), 0) + 0e0 FROM dlock_lock",
    sqlite: "SELECT CAST(coalesce(max(length(snap) + length(log)), 0) AS REAL) FROM dlock_lock",
};

const BYTES: NumberQuery = NumberQuery {
    postgres: "SELECT pg_total_relation_size('dlock_lock')::float8",
    mysql: "SELECT data_length + index_length + 0e0 FROM information_schema.tables \
            WHERE table_schema = DATABASE() AND table_name = 'dlock_lock'",
    // No other table of the file grows.
    sqlite: "SELECT CAST(page_count * page_size AS REAL) FROM pragma_page_count, pragma_page_size",
};

/// A connection that reads the table.
#[derive(Debug)]
pub(crate) enum Table {
    Postgres(PgConnection),
    Mysql(MySqlConnection),
    Sqlite(SqliteConnection),
}

impl Table {
    /// Connects to the database at this address, in the format of the drivers.
    pub(super) async fn connect(url: &str) -> Result<Self, Failure> {
        Ok(match url.split(':').next() {
            Some("postgres") => Self::Postgres(url.parse::<PgConnectOptions>()?.connect().await?),
            Some("mysql") => Self::Mysql(url.parse::<MySqlConnectOptions>()?.connect().await?),
            _ => Self::Sqlite(url.parse::<SqliteConnectOptions>()?.connect().await?),
        })
    }

    /// Returns the number of rows.
    pub(crate) async fn rows(&mut self) -> Result<f64, Failure> {
        self.number(ROWS).await
    }

    /// Returns the bytes of the snapshot and the log in the largest row.
    pub(crate) async fn largest(&mut self) -> Result<f64, Failure> {
        self.number(LARGEST).await
    }

    /// Returns the bytes on the disk, including the index.
    pub(crate) async fn bytes(&mut self) -> Result<f64, Failure> {
        if let Self::Mysql(connection) = self {
            // The server reports the sizes of its last analysis, so the table is analysed again.
            sqlx::query("ANALYZE TABLE dlock_lock").execute(connection).await?;
        }
        self.number(BYTES).await
    }

    async fn number(&mut self, text: NumberQuery) -> Result<f64, Failure> {
        Ok(match self {
            Self::Postgres(connection) => {
                sqlx::query_scalar(text.postgres).fetch_one(connection).await?
            }
            Self::Mysql(connection) => sqlx::query_scalar(text.mysql).fetch_one(connection).await?,
            Self::Sqlite(connection) => {
                sqlx::query_scalar(text.sqlite).fetch_one(connection).await?
            }
        })
    }
}
