//! Locks on an application's pool.

use std::time::Duration;

use dlock_core::{
    AcquireRequest, Acquired, Certainty, ConfigIssue, DynBackend, Error, ErrorKind, Renewal,
    Renewed, WakeUp,
};
use dlock_sql::{Mysql, MysqlConfig};
use dlock_testlab::{
    Stop, Verdict,
    mariadb::{MariadbServer, Options},
};
use sqlx::{
    MySqlConnection, MySqlPool,
    mysql::{MySqlConnectOptions, MySqlPoolOptions},
};

use crate::support::{
    LEASE, SOON, attempt, connect, end_others, exclusive, fill, free, lock, queue, refused, server,
    server_with, take, until, with_mariadb,
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

fn renewal(held: &AcquireRequest) -> Renewal {
    Renewal::new(held.as_claim(), held.mode, LEASE)
}

async fn renew(client: &DynBackend, held: &AcquireRequest) -> Verdict {
    assert_eq!(client.renew(&[renewal(held)]).await?, [Renewed::Kept]);
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

/// Another program uses up the connections of the server, and the application's pool works.
#[test]
fn a_full_server_does_not_cost_a_lock_of_a_pool() {
    with_mariadb(async {
        let server = server_with(&Options::new().with_max_connections(10)).await?;
        let pool = pool(&server, 2).await?;
        let client = open(&pool).await?;
        let held = exclusive("a");
        take(&client, &held).await?;
        let (mut one, mut two) = (pool.acquire().await?, pool.acquire().await?);
        let ids = [id(&mut one).await?, id(&mut two).await?];
        let mut others = fill(&server).await?;
        // With the connection that dlock has kept since the store was opened.
        renew(&client, &held).await?;
        others.clear();
        end_others(&server, &ids).await?;
        let mut others = fill(&server).await?;
        drop((one, two));
        for _ in 0..3 {
            renew(&client, &held).await?;
        }
        let rows = sqlx::raw_sql(RENEWED).fetch_all(&mut others[0]).await?;
        assert_eq!(rows.len(), 1, "the renewals are in the table");
        let exhausted = (pool.acquire().await?, pool.acquire().await?);
        let error = failed(client.renew(&[renewal(&held)]).await)?;
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        for reason in ["limit of connections", "make the pool larger"] {
            assert!(error.to_string().contains(reason), "{error}");
        }
        others.clear();
        until("it has its own connection again", async || {
            Ok(client.renew(&[renewal(&held)]).await.is_ok_and(|all| all == [Renewed::Kept]))
        })
        .await?;
        drop(exhausted);
        free(&client, &held).await
    });
}

const RENEWED: &str = "SELECT 1 FROM dlock.dlock_lock WHERE log LIKE '%K %' OR snap LIKE '%K %'";

async fn id(conn: &mut MySqlConnection) -> Result<i64, Stop> {
    Ok(sqlx::query_scalar("SELECT CAST(CONNECTION_ID() AS SIGNED)").fetch_one(conn).await?)
}

#[test]
fn a_renewal_over_the_pool_uses_no_altered_session() {
    with_mariadb(async {
        for left in ["BEGIN", TEMPORARY, "LOCK TABLES dlock.dlock_schema WRITE"] {
            let server = server_with(&Options::new().with_max_connections(10)).await?;
            let pool = pool(&server, 1).await?;
            let client = open(&pool).await?;
            let held = exclusive("a");
            take(&client, &held).await?;
            let mut one = pool.acquire().await?;
            sqlx::raw_sql(left).execute(&mut *one).await?;
            end_others(&server, &[id(&mut one).await?]).await?;
            let mut others = fill(&server).await?;
            drop(one);
            // A new connection may come before the server has noticed the end of the old one.
            until("it is renewed", async || {
                Ok(client.renew(&[renewal(&held)]).await.is_ok_and(|all| all == [Renewed::Kept]))
            })
            .await?;
            let rows = sqlx::raw_sql(RENEWED).fetch_all(&mut others[0]).await?;
            assert_eq!(rows.len(), 1, "{left}");
        }
        Ok(())
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
        // Both use connections of dlock's own.
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
