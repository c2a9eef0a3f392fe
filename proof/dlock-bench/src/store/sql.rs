//! The private database servers.

use dlock_testlab::{
    Stop,
    mariadb::{self, MariadbServer},
    postgres::{self, PostgresServer},
};

use crate::{
    Failure,
    own::bare::{BareConnection, Statement},
};

/// The limit of connections: each of 64 clients opens a few.
const CONNECTIONS: u32 = 500;

const VERSION: Statement = Statement {
    postgres: "SELECT 'PostgreSQL ' || current_setting('server_version')",
    mysql: "SELECT CONCAT('MariaDB ', VERSION())",
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
        match self {
            Self::Postgres(server) => BareConnection::postgres(&server.url()).await,
            Self::Mariadb(server) => BareConnection::mysql(&server.url()).await,
        }
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
        self.bare().await?.text(VERSION, &[]).await
    }
}
