//! Helpers of the tests: private servers and their clients.

use dlock_core::{ConfigIssue, DynBackend, Error, ErrorKind, WakeUp};
use dlock_sql::{Mysql, MysqlConfig};
pub(crate) use dlock_sql::{Mysql as Store, MysqlConfig as Config};
pub(crate) use dlock_testlab::client::{
    LEASE, SOON, attempt, exclusive, free, granted, lock, name, queue, take, until,
};
use dlock_testlab::{
    Stop, Verdict,
    client::run_on_threads,
    mariadb::{MariadbServer, Options},
};
use sqlx::{Connection as _, MySqlConnection};
pub(crate) use sqlx::{
    MySqlConnection as Connection, MySqlPool as Pool, mysql::MySqlPoolOptions as PoolOptions,
};

pub(crate) use self::{connect as client_of, server as set_up, with_mariadb as run};

pub(crate) type Server = MariadbServer;

/// The forms of the statements: those for MariaDB, and those for MySQL.
pub(crate) const VARIANTS: &[fn(Config) -> Config] =
    &[|config| config, |config| config.with_returning(false)];
pub(crate) const WAKE_UP: WakeUp = WakeUp::Poll;
pub(crate) const UNENCRYPTED: &str = "?ssl-mode=DISABLED";
/// The id of a connection, as [`end_others`] takes it.
pub(crate) const CONNECTION_ID: &str = "SELECT CAST(CONNECTION_ID() AS SIGNED)";
/// Finds the locks of which a renewal is written.
pub(crate) const RENEWED: &str =
    "SELECT 1 FROM dlock.dlock_lock WHERE log LIKE '%K %' OR snap LIKE '%K %'";
/// Finds the clients that wait for a row.
pub(crate) const ROW_WAITS: &str =
    "SELECT 1 FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'";
/// Snapshots that are not records.
pub(crate) const SPOILED_RECORDS: &[&str] = &["'v9 1 1;'", "X'FF'"];
/// Statements after which a session must not renew a lock.
pub(crate) const ALTERED_SESSIONS: [&str; 3] =
    ["BEGIN", TEMPORARY, "LOCK TABLES dlock.dlock_schema WRITE"];
/// Hides the table from the session that runs this.
pub(crate) const TEMPORARY: &str = "CREATE TEMPORARY TABLE dlock.dlock_lock \
                                    (name VARBINARY(512) PRIMARY KEY, base BIGINT, seen BIGINT, \
                                    cut BIGINT, snap MEDIUMBLOB, log MEDIUMBLOB)";

/// Runs a test that needs a MariaDB server. Without MariaDB, the test is skipped, or fails if
/// MariaDB is required.
pub(crate) fn with_mariadb(test: impl Future<Output = Verdict>) {
    run_on_threads("mysql", test);
}

/// A server with empty tables.
pub(crate) async fn server() -> Result<MariadbServer, Stop> {
    server_with(&Options::new()).await
}

pub(crate) async fn server_with(options: &Options) -> Result<MariadbServer, Stop> {
    let server = MariadbServer::start(options).await?;
    server.run_sql(MysqlConfig::SCHEMA).await?;
    Ok(server)
}

/// A server without tables.
pub(crate) async fn empty_server() -> Result<MariadbServer, Stop> {
    MariadbServer::start(&Options::new()).await
}

/// A server with empty tables and few connections.
pub(crate) async fn server_of_few() -> Result<MariadbServer, Stop> {
    server_with(&Options::new().with_max_connections(10)).await
}

pub(crate) fn config(url: &str) -> Result<MysqlConfig, Error> {
    MysqlConfig::from_url(&url.parse()?)
}

/// A separate client.
pub(crate) async fn connect(server: &MariadbServer) -> Result<DynBackend, Error> {
    Mysql::open(config(&server.url())?).await
}

/// A client that uses the statements for MySQL.
pub(crate) async fn connect_plainly(server: &MariadbServer) -> Result<DynBackend, Error> {
    Mysql::open(config(&server.url())?.with_returning(false)).await
}

/// Ends all connections of the clients except these, as the server numbers them.
pub(crate) async fn end_others(server: &MariadbServer, kept: &[i64]) -> Verdict {
    let kept: String = kept.iter().map(|id| format!(", {id}")).collect();
    let others = format!(
        "SELECT id FROM information_schema.processlist WHERE user = 'dlock' AND id NOT IN (0{kept})"
    );
    for id in server.query(&others).await?.concat() {
        // It may have ended by itself.
        let _ = server.run_sql(&format!("KILL {id}")).await;
    }
    until("they have ended", async || Ok(server.query(&others).await?.is_empty())).await
}

/// The connections of another program, which leave none to other clients.
pub(crate) async fn fill(server: &MariadbServer) -> Result<Vec<MySqlConnection>, Stop> {
    let mut others = Vec::new();
    loop {
        match MySqlConnection::connect(&server.url()).await {
            Ok(conn) => others.push(conn),
            Err(error) if error.to_string().contains("Too many connections") => return Ok(others),
            Err(error) => return Err(error.into()),
        }
    }
}

/// The error of a configuration that can't be used.
#[track_caller]
pub(crate) fn refused(
    config: MysqlConfig,
    issue: ConfigIssue,
    remedy: &'static str,
) -> impl Future<Output = Verdict> {
    let wrong = move |error: &Error| Stop::failed(format!("{issue:?}, {remedy}: {error}"));
    async move {
        let Err(error) = Mysql::open(config).await else {
            return Err(Stop::failed(format!("{issue:?} is not refused")));
        };
        let is_it = error.kind() == ErrorKind::Config(issue) && error.to_string().contains(remedy);
        if is_it { Ok(()) } else { Err(wrong(&error)) }
    }
}

/// Checks that an error reports an unusable server, and contains these words.
#[track_caller]
pub(crate) fn assert_unavailable(error: &Error, words: &str) {
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains(words), "{words}: {error}");
}
