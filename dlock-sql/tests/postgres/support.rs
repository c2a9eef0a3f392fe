//! Helpers of the tests: a private server, its clients, and direct access to its tables.

use dlock_core::{DynBackend, Error, WakeUp};
use dlock_sql::{Postgres, PostgresConfig};
pub(crate) use dlock_sql::{Postgres as Store, PostgresConfig as Config};
pub(crate) use dlock_testlab::client::{
    ask, attempt, exclusive, free, granted, name, queue, renew, says, take, until, works,
    works_fully,
};
use dlock_testlab::{
    Stop, Verdict,
    client::{self, run_on_threads},
    postgres::{Options, PgBouncer, PostgresServer},
};
use sqlx::{Connection as _, PgConnection};
pub(crate) use sqlx::{
    PgConnection as Connection, PgPool as Pool, postgres::PgPoolOptions as PoolOptions,
};

pub(crate) type Server = PostgresServer;

pub(crate) use self::server as empty_server;

/// The forms of the statements.
pub(crate) const VARIANTS: &[fn(Config) -> Config] = &[|config| config];
pub(crate) const WAKE_UP: WakeUp = WakeUp::Push;
pub(crate) const UNENCRYPTED: &str = "?sslmode=disable";
/// The id of a connection, as [`end_others`] takes it.
pub(crate) const CONNECTION_ID: &str = "SELECT pg_backend_pid()::bigint";
/// Finds the locks of which a renewal is written.
pub(crate) const RENEWED: &str =
    "SELECT 1 FROM public.dlock_lock WHERE log LIKE '%K %' OR snap LIKE '%K %'";
/// Finds the clients that wait for a row.
pub(crate) const ROW_WAITS: &str =
    "SELECT 1 FROM pg_stat_activity WHERE usename = 'dlock' AND wait_event_type = 'Lock'";
/// Snapshots that are not records.
pub(crate) const SPOILED_RECORDS: &[&str] = &["'v9 1 1;'"];
/// Statements after which a session must not renew a lock.
pub(crate) const ALTERED_SESSIONS: [&str; 3] = [
    "BEGIN",
    "CREATE TEMP TABLE dlock_lock (LIKE public.dlock_lock INCLUDING ALL); \
     SET search_path = pg_temp, public",
    "SET synchronous_commit = off",
];

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

/// A server with dlock's tables.
pub(crate) async fn set_up() -> Result<PostgresServer, Stop> {
    Ok(start().await?.0)
}

/// A server with dlock's tables and few connections.
pub(crate) async fn server_of_few() -> Result<PostgresServer, Stop> {
    let server = PostgresServer::start(&Options::new().with_max_connections(12)).await?;
    connect(&create(&server)).await?;
    Ok(server)
}

/// A client of a server with dlock's tables.
pub(crate) async fn client_of(server: &PostgresServer) -> Result<DynBackend, Error> {
    connect(&server.url()).await
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

/// Ends all connections of the clients except these, as the server numbers them.
pub(crate) async fn end_others(server: &PostgresServer, kept: &[i64]) -> Verdict {
    let kept: String = kept.iter().map(|pid| format!(", {pid}")).collect();
    let others = format!(
        "select pg_terminate_backend(pid) from pg_stat_activity \
         where usename = 'dlock' and pid not in (0{kept})"
    );
    until("they have ended", async || Ok(server.query(&others).await?.is_empty())).await
}

/// The connections of another program, which leave none to other clients.
pub(crate) async fn fill(server: &PostgresServer) -> Result<Vec<PgConnection>, Stop> {
    let mut others = Vec::new();
    loop {
        match PgConnection::connect(&server.url()).await {
            Ok(conn) => others.push(conn),
            Err(error) => match error.as_database_error().and_then(|error| error.code()) {
                Some(code) if code == "53300" => return Ok(others),
                _ => return Err(error.into()),
            },
        }
    }
}

/// The error of a connect that has to fail.
pub(crate) async fn refused(url: &str) -> Result<Error, Stop> {
    client::refused(connect(url)).await
}
