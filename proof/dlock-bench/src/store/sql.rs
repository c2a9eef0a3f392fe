//! The private database servers, and the table of the locks.

use crate::{
    Failure,
    own::bare::{BareConnection, Statement},
};
use dlock_testlab::{
    Stop,
    mariadb::{self, MariadbServer},
    postgres::{self, PostgresServer},
};

/// The limit of connections: each of 64 clients opens a few.
const CONNECTIONS: u32 = 500;

const VERSION: Statement = Statement {
    postgres: "SELECT 'PostgreSQL ' || current_setting('server_version')",
    mysql: "SELECT CONCAT('MariaDB ', VERSION())",
    sqlite: "SELECT 'SQLite ' || sqlite_version()",
};

/// A kind of server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// PostgreSQL.
    Postgres,
    /// MariaDB.
    Mariadb,
}

/// A private server.
#[derive(Debug)]
pub(crate) enum SqlServer {
    /// PostgreSQL.
    Postgres(PostgresServer),
    /// MariaDB.
    Mariadb(MariadbServer),
}

impl SqlServer {
    /// Starts a server. If `durable` is true, a commit waits for the disk.
    pub(crate) async fn start(kind: Kind, durable: bool) -> Result<Self, Failure> {
        let started = match kind {
            Kind::Postgres => {
                let options = postgres::Options::new().with_fsync(durable);
                let options = options.with_max_connections(CONNECTIONS);
                PostgresServer::start(&options).await.map(Self::Postgres)
            }
            Kind::Mariadb => {
                let options = mariadb::Options::new().with_fsync(durable);
                let options = options.with_max_connections(CONNECTIONS);
                // A reused thread would stay on its former processor.
                let options = options.with_config("thread_cache_size = 0");
                // The default size: with a small log, the server would wait for the log.
                let options = options.with_config("innodb_log_file_size = 96M");
                MariadbServer::start(&options).await.map(Self::Mariadb)
            }
        };
        started.map_err(|stop: Stop| format!("no server: {stop:?}").into())
    }

    /// Opens a connection with the bare driver.
    pub(crate) async fn bare(&self) -> Result<BareConnection, Failure> {
        BareConnection::connect(&self.plain_url()).await
    }

    /// Returns the address in the format of the drivers.
    pub(crate) fn plain_url(&self) -> String {
        match self {
            Self::Postgres(server) => server.url(),
            Self::Mariadb(server) => server.url(),
        }
    }

    /// Returns the id of the first process.
    pub(crate) fn pid(&self) -> Option<u32> {
        match self {
            Self::Postgres(server) => server.pid(),
            Self::Mariadb(server) => server.pid(),
        }
    }

    /// Returns the name and version of the product.
    pub(crate) async fn version(&self) -> Result<String, Failure> {
        self.bare().await?.text(VERSION).await
    }
}

const ROWS: Statement = Statement {
    postgres: "SELECT count(*)::float8 FROM dlock_lock",
    mysql: "SELECT COUNT(*) + 0e0 FROM dlock_lock",
    sqlite: "SELECT CAST(count(*) AS REAL) FROM dlock_lock",
};

const LARGEST: Statement = Statement {
    postgres: "SELECT coalesce(max(octet_length(snap) + octet_length(log)), 0)::float8 \
               FROM dlock_lock",
    mysql: "SELECT COALESCE(MAX(LENGTH(snap) + LENGTH(log)), 0) + 0e0 FROM dlock_lock",
    sqlite: "SELECT CAST(coalesce(max(length(snap) + length(log)), 0) AS REAL) FROM dlock_lock",
};

const BYTES: Statement = Statement {
    postgres: "SELECT pg_total_relation_size('dlock_lock')::float8",
    mysql: "SELECT data_length + index_length + 0e0 FROM information_schema.tables \
            WHERE table_schema = DATABASE() AND table_name = 'dlock_lock'",
    // No other table of the file grows.
    sqlite: "SELECT CAST(page_count * page_size AS REAL) FROM pragma_page_count, pragma_page_size",
};

/// The table of dlock's locks in a database, read with the bare driver.
#[derive(Debug)]
pub(crate) struct Table(BareConnection);

impl Table {
    /// Connects to the database at this address, in the format of the drivers.
    pub(super) async fn connect(url: &str) -> Result<Self, Failure> {
        Ok(Self(BareConnection::connect(url).await?))
    }

    /// Returns the number of rows.
    pub(crate) async fn rows(&mut self) -> Result<f64, Failure> {
        self.0.number(ROWS).await
    }

    /// Returns the bytes of the snapshot and the log in the largest row.
    pub(crate) async fn largest(&mut self) -> Result<f64, Failure> {
        self.0.number(LARGEST).await
    }

    /// Returns the bytes on the disk, including the index.
    pub(crate) async fn bytes(&mut self) -> Result<f64, Failure> {
        if let BareConnection::Mysql(connection) = &mut self.0 {
            // The server reports the sizes of its last analysis, so the table is analysed again.
            sqlx::query("ANALYZE TABLE dlock_lock").execute(connection).await?;
        }
        self.0.number(BYTES).await
    }
}
