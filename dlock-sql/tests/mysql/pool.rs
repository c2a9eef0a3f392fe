//! Sessions and settings of an application's pool.

use dlock_core::{Acquired, ConfigIssue, DynBackend, Error, ErrorKind};
use dlock_sql::{Mysql, MysqlConfig};
use dlock_testlab::{Stop, client::renew, mariadb::MariadbServer};
use sqlx::{
    MySqlPool,
    mysql::{MySqlConnectOptions, MySqlPoolOptions},
};

use crate::support::{
    TEMPORARY, attempt, connect, exclusive, free, refused, server, take, with_mariadb,
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
        let error = MysqlConfig::from_pool(nowhere).err();
        let error = error.ok_or_else(|| Stop::failed("it has no database"))?;
        assert_eq!(error.kind(), ErrorKind::Config(ConfigIssue::Url), "{error}");
        Ok(())
    });
}

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
