//! Helpers of the tests: private servers, locks on them, and another program.

use std::time::Duration;

use dlock_core::{DynBackend, Error, LockOptions, Locks, Noted, Registry};
use dlock_sql::{MYSQL, POSTGRES};
use dlock_testlab::{
    Stop, Verdict,
    client::run_on_threads,
    mariadb::{self, MariadbServer},
    postgres::{self, PostgresServer},
};

pub(crate) const LEASE: Duration = Duration::from_secs(30);
pub(crate) const SHORT: Duration = Duration::from_millis(2400);

pub(crate) enum Server {
    Postgres(PostgresServer),
    Mysql(MariadbServer),
}

impl Server {
    pub(crate) async fn postgres() -> Result<Self, Stop> {
        Ok(Self::Postgres(PostgresServer::start(&postgres::Options::new()).await?))
    }

    pub(crate) async fn mysql() -> Result<Self, Stop> {
        Ok(Self::Mysql(MariadbServer::start(&mariadb::Options::new()).await?))
    }

    /// A server that syncs what it commits.
    pub(crate) async fn durable_postgres() -> Result<Self, Stop> {
        let options = postgres::Options::new().with_fsync(true);
        Ok(Self::Postgres(PostgresServer::start(&options).await?))
    }

    /// A server that syncs what it commits.
    pub(crate) async fn durable_mysql() -> Result<Self, Stop> {
        let options = mariadb::Options::new().with_fsync(true);
        Ok(Self::Mysql(MariadbServer::start(&options).await?))
    }

    /// Returns its URL with these options. The response timeout is long, for a busy machine.
    pub(crate) fn url(&self, options: &str) -> String {
        let url = match self {
            Self::Postgres(server) => server.url(),
            Self::Mysql(server) => server.url(),
        };
        format!("{url}?dlock.create_schema=true&dlock.response_timeout=30s&{options}")
    }

    /// A read or a write of the other program.
    pub(crate) async fn query(&self, sql: &str) -> Result<Vec<Vec<String>>, Stop> {
        match self {
            Self::Postgres(server) => server.query(sql).await,
            Self::Mysql(server) => server.query(sql).await,
        }
    }

    /// The server's time in microseconds since 1970, in its SQL.
    pub(crate) fn now(&self) -> &'static str {
        match self {
            Self::Postgres(_) => "(extract(epoch FROM now()) * 1000000)::bigint",
            Self::Mysql(_) => "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))",
        }
    }

    pub(crate) async fn end_sessions(&self) -> Verdict {
        match self {
            Self::Postgres(server) => server.terminate_backends().await?,
            Self::Mysql(server) => server.terminate_backends().await?,
        };
        Ok(())
    }
}

/// Locks of a separate client, with leases of this length, and without local hand-off.
pub(crate) async fn locks(url: &str, lease: Duration) -> Result<Locks, Error> {
    over(connect(url).await?, lease)
}

/// As [`locks`], with the note `web-3`.
pub(crate) async fn noted_locks(url: &str, lease: Duration) -> Result<Locks, Error> {
    over(Noted::new(connect(url).await?, "web-3".parse()?), lease)
}

pub(crate) async fn connect(url: &str) -> Result<DynBackend, Error> {
    Registry::new().with(POSTGRES).with(MYSQL).connect(url.parse()?, &[]).await
}

fn over(backend: DynBackend, lease: Duration) -> Result<Locks, Error> {
    let options = LockOptions::new().with_lease(lease);
    Locks::new(backend)?.without_handoff().with_options(options)
}

/// Runs a test that needs a server. Without it, the test is skipped, or fails if the server is
/// required.
pub(crate) fn run(store: &str, test: impl Future<Output = Verdict>) {
    run_on_threads(store, test);
}
