//! Sessions and settings of an application's pool.

use dlock_core::{Acquired, ConfigIssue, DynBackend, Error, ErrorKind};
use dlock_sql::{Durability, Postgres, PostgresConfig};
use dlock_testlab::{Stop, postgres::PostgresServer};
use sqlx::{PgPool, postgres::PgPoolOptions};

use crate::support::{
    attempt, connect, exclusive, free, run, says, server, start, take, works_fully,
};

async fn pool(server: &PostgresServer, connections: u32) -> Result<PgPool, Stop> {
    Ok(PgPoolOptions::new().max_connections(connections).connect(&server.url()).await?)
}

async fn open(pool: &PgPool) -> Result<DynBackend, Error> {
    Postgres::open(PostgresConfig::from_pool(pool.clone())?.with_create_schema(true)).await
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
