//! Locks on an application's pool.

use std::time::Duration;

use dlock_core::{
    Acquired, Certainty, ConfigIssue, DynBackend, Error, ErrorKind, Renewal, Renewed, WakeUp,
};
use dlock_sql::{Mysql, MysqlConfig};
use dlock_testlab::{Stop, Verdict, mariadb::MariadbServer};
use sqlx::{
    MySqlPool,
    mysql::{MySqlConnectOptions, MySqlPoolOptions},
};

use crate::support::{
    LEASE, SOON, attempt, connect, exclusive, free, lock, queue, refused, server, take,
    with_mariadb,
};

async fn pool(server: &MariadbServer, connections: u32) -> Result<MySqlPool, Stop> {
    Ok(MySqlPoolOptions::new().max_connections(connections).connect(&server.url()).await?)
}

/// A pool of one connection, on which this statement was run.
async fn pool_after(url: &str, sql: &'static str) -> Result<MySqlPool, Stop> {
    let options = MySqlPoolOptions::new().max_connections(1).after_connect(move |conn, _| {
        Box::pin(async move { sqlx::raw_sql(sql).execute(conn).await.map(drop) })
    });
    Ok(options.connect(url).await?)
}

async fn open(pool: &MySqlPool) -> Result<DynBackend, Error> {
    Mysql::open(MysqlConfig::from_pool(pool.clone())?.with_create_schema(true)).await
}

async fn open_hasty(pool: &MySqlPool) -> Result<DynBackend, Error> {
    let config = MysqlConfig::from_pool(pool.clone())?;
    Mysql::open(config.with_response_timeout(Duration::from_secs(5))).await
}

async fn renew(client: &DynBackend, held: &dlock_core::AcquireRequest) -> Verdict {
    let renewal = Renewal::new(held.as_claim(), held.mode, LEASE);
    assert_eq!(client.renew(&[renewal]).await?, [Renewed::Kept]);
    Ok(())
}

fn failed<T>(result: Result<T, Error>) -> Result<Error, Stop> {
    result.err().ok_or_else(|| Stop::failed("it goes well"))
}

#[test]
fn a_pool_of_one_connection_is_enough() {
    with_mariadb(async {
        let server = server().await?;
        let pool = pool(&server, 1).await?;
        for returning in [true, false] {
            let config = MysqlConfig::from_pool(pool.clone())?.with_returning(returning);
            let client = Mysql::open(config).await?;
            let other = open(&pool).await?;
            assert_eq!(client.guarantees().wake_up, WakeUp::Poll);
            assert_eq!(client.store(), connect(&server).await?.store());
            let (held, waits) = (exclusive("a"), exclusive("a"));
            let first = take(&client, &held).await?;
            renew(&client, &held).await?;
            queue(&other, &waits).await?;
            free(&client, &held).await?;
            let second = lock(&other, &waits).await?;
            assert!(second.token > first.token, "{second:?}");
            free(&other, &waits).await?;
        }
        // The connection returns to the pool after each statement.
        let mut conn = tokio::time::timeout(SOON, pool.acquire()).await??;
        sqlx::raw_sql("SELECT 1").execute(&mut *conn).await?;
        Ok(())
    });
}

#[test]
fn an_exhausted_pool_does_not_cost_a_lock() {
    with_mariadb(async {
        let server = server().await?;
        let pool = pool(&server, 1).await?;
        let client = open_hasty(&pool).await?;
        let held = exclusive("a");
        take(&client, &held).await?;
        let exhausted = pool.acquire().await?;
        renew(&client, &held).await?;
        let error = failed(client.acquire(&exclusive("b")).await)?;
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert_eq!(error.certainty(), Certainty::NotApplied);
        assert!(error.to_string().contains("make the pool larger"), "{error}");
        drop(exhausted);
        free(&client, &held).await
    });
}

/// Simulates a `begin()` that was dropped half-way: writes on that connection are never visible.
#[test]
fn a_connection_in_a_transaction_is_not_used() {
    with_mariadb(async {
        let server = server().await?;
        let pool = pool(&server, 2).await?;
        let client = open(&pool).await?;
        let (mut one, mut two) = (pool.acquire().await?, pool.acquire().await?);
        for conn in [&mut one, &mut two] {
            sqlx::raw_sql("BEGIN").execute(&mut **conn).await?;
        }
        drop((one, two));
        let held = exclusive("a");
        take(&client, &held).await?;
        assert_eq!(connect(&server).await?.acquire(&attempt("a")).await?, Acquired::Busy);
        free(&client, &held).await
    });
}

/// Uncommitted rows must not be used, because they may be rolled back.
#[test]
fn uncommitted_rows_are_not_read_at_any_isolation_of_the_pool() {
    with_mariadb(async {
        let server = server().await?;
        let reads = "SET SESSION TRANSACTION ISOLATION LEVEL READ UNCOMMITTED";
        let client = open(&pool_after(&server.url(), reads).await?).await?;
        let held = exclusive("a");
        take(&client, &held).await?;
        let writer = pool(&server, 1).await?;
        let mut conn = writer.acquire().await?;
        let gone = "BEGIN; DELETE FROM dlock_lock";
        sqlx::raw_sql(gone).execute(&mut *conn).await?;
        let mut dirty = pool_after(&server.url(), reads).await?.acquire().await?;
        let left: i64 =
            sqlx::query_scalar("SELECT COUNT(*) FROM dlock_lock").fetch_one(&mut *dirty).await?;
        assert_eq!(left, 0, "the server shows nobody what is not committed");
        assert_eq!(client.inspect(&held.name).await?.holders.len(), 1);
        sqlx::raw_sql("ROLLBACK").execute(&mut *conn).await?;
        free(&client, &held).await
    });
}

#[test]
fn an_unusable_pool_is_refused() {
    with_mariadb(async {
        let server = server().await?;
        for (sql, issue, remedy) in [
            ("SET autocommit = 0", ConfigIssue::Access, "autocommit = 1"),
            ("SET sql_mode = ''", ConfigIssue::Access, "STRICT_ALL_TABLES"),
            (
                "CREATE DATABASE IF NOT EXISTS o; USE o",
                ConfigIssue::ForeignStore,
                "set the database in",
            ),
        ] {
            let pool = pool_after(&server.admin_url(), sql).await?;
            if issue == ConfigIssue::ForeignStore {
                let mut conn = pool.acquire().await?;
                sqlx::raw_sql(MysqlConfig::SCHEMA).execute(&mut *conn).await?;
            }
            let config = MysqlConfig::from_pool(pool)?;
            refused(config, issue, remedy).await?;
        }
        let nowhere = MySqlPool::connect_lazy_with(MySqlConnectOptions::new());
        let error = failed(MysqlConfig::from_pool(nowhere))?;
        assert_eq!(error.kind(), ErrorKind::Config(ConfigIssue::Url), "{error}");
        Ok(())
    });
}

#[test]
fn a_pool_stays_usable_after_a_dropped_statement() {
    with_mariadb(async {
        let server = server().await?;
        let options = MySqlPoolOptions::new().max_connections(1).test_before_acquire(false);
        let pool = options.connect(&server.url()).await?;
        let client = open_hasty(&pool).await?;
        server.pause()?;
        let error = failed(client.acquire(&exclusive("a")).await);
        server.resume()?;
        assert_eq!(error?.kind(), ErrorKind::Unavailable);
        let held = exclusive("b");
        take(&client, &held).await?;
        free(&client, &held).await?;
        let row: i64 = sqlx::query_scalar("SELECT 7").fetch_one(&pool).await?;
        assert_eq!(row, 7);
        Ok(())
    });
}

#[test]
fn locks_outlive_their_pool() {
    with_mariadb(async {
        let server = server().await?;
        let pool = pool(&server, 2).await?;
        let client = open(&pool).await?;
        let (first, held) = (exclusive("first"), exclusive("a"));
        take(&client, &first).await?;
        take(&client, &held).await?;
        pool.close().await;
        // So far, dlock has no connection of its own that it could use for this.
        free(&client, &first).await?;
        renew(&client, &held).await?;
        free(&client, &held).await?;
        assert!(connect(&server).await?.inspect(&held.name).await?.is_free());
        take(&client, &exclusive("b")).await?;
        Ok(())
    });
}

const TEMPORARY: &str = "CREATE TEMPORARY TABLE dlock.dlock_lock (name VARBINARY(512) PRIMARY KEY, \
                         base BIGINT, seen BIGINT, cut BIGINT, snap MEDIUMBLOB, log MEDIUMBLOB)";

/// Both hide the writes of other clients, and no statement notices that.
#[test]
fn a_connection_with_its_own_view_of_the_table_is_not_used() {
    with_mariadb(async {
        let server = server().await?;
        let alone = connect(&server).await?;
        let held = exclusive("a");
        take(&alone, &held).await?;
        for (n, left) in [
            TEMPORARY,
            "CREATE TEMPORARY TABLE dlock.dlock_lock (other INT)",
            "LOCK TABLES dlock.dlock_lock WRITE",
            "LOCK TABLES dlock.dlock_lock WRITE, dlock.dlock_schema WRITE",
        ]
        .into_iter()
        .enumerate()
        {
            let pool = pool(&server, 2).await?;
            let client = open(&pool).await?;
            let (mut one, mut two) = (pool.acquire().await?, pool.acquire().await?);
            sqlx::raw_sql(left).execute(&mut *one).await?;
            if n < 2 {
                sqlx::raw_sql(left).execute(&mut *two).await?;
            }
            drop((one, two));
            assert_eq!(client.acquire(&attempt("a")).await?, Acquired::Busy, "{left}");
            let other = exclusive(&format!("b{n}"));
            take(&client, &other).await?;
            assert_eq!(alone.inspect(&other.name).await?.holders.len(), 1, "{left}");
            renew(&alone, &held).await?;
            free(&client, &other).await?;
        }
        Ok(())
    });
}
