//! The private servers.

use dlock_testlab::{
    Stop,
    mariadb::{self, MariadbServer},
    postgres::{self, PostgresServer},
};

use super::bare::{BareConnection, Statement};
use crate::Failure;

/// Each of 64 clients has a few.
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

/// One that is used for nothing else.
#[derive(Debug)]
pub(crate) enum SqlServer {
    /// PostgreSQL.
    Postgres(PostgresServer),
    /// MariaDB.
    Mariadb(MariadbServer),
}

impl SqlServer {
    /// Starts one; `durable` has it wait for its disk.
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
                // A thread that is used again would stay on the processor where it was.
                let options = options.with_config("thread_cache_size = 0");
                // As large as by default: a small one is what the server waits for.
                let options = options.with_config("innodb_log_file_size = 96M");
                MariadbServer::start(&options).await.map(Self::Mariadb)
            }
        };
        started.map_err(|stop: Stop| format!("no server: {stop:?}").into())
    }

    /// A connection to it by the driver alone.
    pub(crate) async fn bare(&self) -> Result<BareConnection, Failure> {
        match self {
            Self::Postgres(server) => BareConnection::postgres(&server.url()).await,
            Self::Mariadb(server) => BareConnection::mysql(&server.url()).await,
        }
    }

    /// Its address, as drivers take it.
    pub(crate) fn plain_url(&self) -> String {
        match self {
            Self::Postgres(server) => server.url(),
            Self::Mariadb(server) => server.url(),
        }
    }

    /// The id of its first process.
    pub(crate) fn pid(&self) -> Option<u32> {
        match self {
            Self::Postgres(server) => server.pid(),
            Self::Mariadb(server) => server.pid(),
        }
    }

    /// Its name and version.
    pub(crate) async fn version(&self) -> Result<String, Failure> {
        self.bare().await?.text(VERSION, &[]).await
    }
}
