//! Locks on an application's pool.

use std::time::Duration;

use dlock_core::{Acquired, Certainty, ConfigIssue, DynBackend, Error, ErrorKind, WakeUp};
use dlock_sql::{Durability, Postgres, PostgresConfig};
use dlock_testlab::{
    Stop,
    postgres::{Options, PostgresServer},
};
use sqlx::{PgConnection, PgPool, postgres::PgPoolOptions};

use crate::support::{
    attempt, connect, end_others, exclusive, fill, free, renew, run, says, server, start, take,
    until, works, works_fully,
};

async fn pool(server: &PostgresServer, connections: u32) -> Result<PgPool, Stop> {
    Ok(PgPoolOptions::new().max_connections(connections).connect(&server.url()).await?)
}

async fn open(pool: &PgPool) -> Result<DynBackend, Error> {
    Postgres::open(PostgresConfig::from_pool(pool.clone())?.with_create_schema(true)).await
}

#[test]
fn a_pool_of_one_connection_is_enough() {
    run(async {
        let server = server().await?;
        let pool = pool(&server, 1).await?;
        let client = open(&pool).await?;
        assert_eq!(client.guarantees().wake_up, WakeUp::Push);
        assert_eq!(client.store(), format!("postgres://{}/dlock", server.address()));
        works_fully(&client, &open(&pool).await?, "a").await?;
        // The connection returns to the pool after each statement.
        let mut conn = tokio::time::timeout(Duration::from_secs(60), pool.acquire()).await??;
        sqlx::raw_sql("select 1").execute(&mut *conn).await?;
        Ok(())
    });
}

#[test]
fn an_exhausted_pool_does_not_cost_a_lock() {
    run(async {
        let server = server().await?;
        let pool = pool(&server, 1).await?;
        let config = PostgresConfig::from_pool(pool.clone())?.with_create_schema(true);
        let config = config.with_response_timeout(Duration::from_secs(4));
        let client = Postgres::open(config).await?;
        let held = exclusive("a");
        take(&client, &held).await?;
        let exhausted = pool.acquire().await?;
        renew(&client, &held).await?;
        let error = client.acquire(&exclusive("b")).await.err();
        let error = error.ok_or_else(|| Stop::failed("it needs no connection"))?;
        says(&error, ErrorKind::Unavailable, "pool");
        assert_eq!(error.certainty(), Certainty::NotApplied);
        drop(exhausted);
        free(&client, &held).await
    });
}

/// Another program uses up the connections of the server, and the application's pool works.
#[test]
fn a_full_server_does_not_cost_a_lock_of_a_pool() {
    run(async {
        let server = PostgresServer::start(&Options::new().with_max_connections(12)).await?;
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
        let error = renew(&client, &held).await.err().map(|stop| format!("{stop:?}"));
        let error = error.ok_or_else(|| Stop::failed("it needs no connection"))?;
        for reason in ["limit of connections", "make the pool larger"] {
            assert!(error.contains(reason), "{error}");
        }
        others.clear();
        until("it has its own connection again", async || Ok(renew(&client, &held).await.is_ok()))
            .await?;
        drop(exhausted);
        free(&client, &held).await
    });
}

const RENEWED: &str = "SELECT 1 FROM public.dlock_lock WHERE log LIKE '%K %' OR snap LIKE '%K %'";

async fn id(conn: &mut PgConnection) -> Result<i32, Stop> {
    Ok(sqlx::query_scalar("SELECT pg_backend_pid()").fetch_one(conn).await?)
}

#[test]
fn a_renewal_over_the_pool_uses_no_altered_session() {
    run(async {
        for left in [
            "BEGIN",
            "CREATE TEMP TABLE dlock_lock (LIKE public.dlock_lock INCLUDING ALL); \
             SET search_path = pg_temp, public",
            "SET synchronous_commit = off",
        ] {
            let server = PostgresServer::start(&Options::new().with_max_connections(12)).await?;
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
            until("it is renewed", async || Ok(renew(&client, &held).await.is_ok())).await?;
            let rows = sqlx::raw_sql(RENEWED).fetch_all(&mut others[0]).await?;
            assert_eq!(rows.len(), 1, "{left}");
        }
        Ok(())
    });
}

/// Simulates a `begin()` that was dropped half-way: writes on that connection are never visible.
#[test]
fn a_connection_in_a_transaction_is_not_used() {
    run(async {
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
        let other = connect(&server.url()).await?;
        assert!(matches!(other.acquire(&exclusive("a")).await?, Acquired::Queued));
        let left = "SELECT 1 FROM pg_stat_activity WHERE state LIKE 'idle in transaction%'";
        free(&client, &held).await?;
        for _ in 0..2 {
            // Both connections have been used.
            client.inspect(&held.name).await?;
        }
        let left = server.query(left).await?.len();
        assert!(left <= 1, "one may not have been needed: {left}");
        Ok(())
    });
}

/// A temporary table of a session hides another one of its name, and its types those of the catalog.
#[test]
fn temporary_objects_of_a_pooled_session_are_not_used() {
    run(async {
        let (server, alone) = start().await?;
        let held = exclusive("a");
        take(&alone, &held).await?;
        let pool = pool(&server, 2).await?;
        let client = open(&pool).await?;
        let (mut one, mut two) = (pool.acquire().await?, pool.acquire().await?);
        for conn in [&mut one, &mut two] {
            let left = "CREATE TEMP TABLE dlock_lock (LIKE public.dlock_lock INCLUDING ALL); \
                        CREATE TEMP TABLE pg_class (oid oid); \
                        CREATE DOMAIN pg_temp.text AS pg_catalog.text CHECK (false); \
                        SET search_path = pg_temp, public";
            sqlx::raw_sql(left).execute(&mut **conn).await?;
        }
        drop((one, two));
        assert!(matches!(client.acquire(&attempt("a")).await?, Acquired::Busy));
        let other = exclusive("b");
        take(&client, &other).await?;
        assert_eq!(alone.inspect(&other.name).await?.holders.len(), 1);
        free(&client, &other).await?;
        free(&alone, &held).await?;
        works_fully(&client, &alone, "c").await
    });
}

/// dlock's own connections lack the settings that the application makes after connecting.
#[test]
fn a_pool_with_other_tables_than_its_options_is_refused() {
    run(async {
        let server = server().await?;
        let pool = PgPoolOptions::new().max_connections(1).after_connect(|conn, _| {
            Box::pin(async move {
                let sql = "CREATE SCHEMA IF NOT EXISTS other; SET search_path = other";
                sqlx::raw_sql(sql).execute(conn).await.map(drop)
            })
        });
        let pool = pool.connect(&server.url()).await?;
        let error = open(&pool).await.err();
        let error = error.ok_or_else(|| Stop::failed("renewals would go elsewhere"))?;
        says(&error, ErrorKind::Config(ConfigIssue::ForeignStore), "search_path");
        Ok(())
    });
}

#[test]
fn a_pool_stays_usable_after_a_dropped_statement() {
    run(async {
        let (server, _) = start().await?;
        let options = PgPoolOptions::new().max_connections(1).test_before_acquire(false);
        let pool = options.connect(&server.url()).await?;
        let config = PostgresConfig::from_pool(pool.clone())?;
        let client = Postgres::open(config.with_response_timeout(Duration::from_secs(4))).await?;
        works(&client, "a").await?;
        server.pause()?;
        let error = client.acquire(&exclusive("a")).await.err();
        server.resume()?;
        let error = error.ok_or_else(|| Stop::failed("nobody has answered"))?;
        says(&error, ErrorKind::Unavailable, "check whether the server answers");
        assert_eq!(error.certainty(), Certainty::NotApplied);
        works(&client, "b").await?;
        let row: i32 = sqlx::query_scalar("select 7").fetch_one(&pool).await?;
        assert_eq!(row, 7);
        Ok(())
    });
}

#[test]
fn locks_outlive_their_pool() {
    run(async {
        let server = server().await?;
        let pool = pool(&server, 2).await?;
        let client = open(&pool).await?;
        let held = exclusive("a");
        take(&client, &held).await?;
        pool.close().await;
        renew(&client, &held).await?;
        free(&client, &held).await?;
        works_fully(&client, &connect(&server.url()).await?, "a").await?;
        // All of this used few connections.
        assert!(server.connections().await? <= 6);
        Ok(())
    });
}

#[test]
fn a_setting_of_the_pools_owner_is_refused() {
    run(async {
        let server = server().await?;
        let config = PostgresConfig::from_pool(pool(&server, 1).await?)?;
        let error = Postgres::open(config.with_durability(Durability::Relaxed)).await.err();
        let error = error.ok_or_else(|| Stop::failed("it is let in"))?;
        says(&error, ErrorKind::Config(ConfigIssue::OptionValue), "ALTER ROLE");
        Ok(())
    });
}
