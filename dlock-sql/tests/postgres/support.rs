//! Helpers of the tests: a private server, its clients, and direct access to its tables.

use dlock_core::{DynBackend, Error};
use dlock_sql::{Postgres, PostgresConfig};
pub(crate) use dlock_testlab::client::{
    LEASE, ask, attempt, exclusive, free, granted, name, queue, renew, says, take, until, works,
    works_fully,
};
use dlock_testlab::{
    Stop, Verdict,
    client::{self, run_on_threads},
    postgres::{Options, PgBouncer, PostgresServer},
};

/// Runs a test that needs a server. Without PostgreSQL, the test is skipped, or fails if PostgreSQL
/// is required.
pub(crate) fn run(test: impl Future<Output = Verdict>) {
    run_on_threads("postgres", test);
}

pub(crate) async fn server() -> Result<PostgresServer, Stop> {
    PostgresServer::start(&Options::new()).await
}

/// A server with dlock's tables, and a client of it.
pub(crate) async fn start() -> Result<(PostgresServer, DynBackend), Stop> {
    let server = server().await?;
    let client = connect(&create(&server)).await?;
    Ok((server, client))
}

/// A server with dlock's tables, and a pooler before it.
pub(crate) async fn start_pooler(config: &[&str]) -> Result<(PostgresServer, PgBouncer), Stop> {
    let (server, _) = start().await?;
    let bouncer = PgBouncer::start(&server, config).await?;
    Ok((server, bouncer))
}

/// Returns the URL of a client that creates the tables.
pub(crate) fn create(server: &PostgresServer) -> String {
    format!("{}?dlock.create_schema=true", server.url())
}

pub(crate) fn config(url: &str) -> Result<PostgresConfig, Error> {
    PostgresConfig::from_url(&url.parse()?)
}

pub(crate) async fn connect(url: &str) -> Result<DynBackend, Error> {
    Postgres::open(config(url)?).await
}

/// The error of a connect that has to fail.
pub(crate) async fn refused(url: &str) -> Result<Error, Stop> {
    client::refused(connect(url)).await
}
