//! Locks over the application's own connection pool, in the database of its data.
//!
//! `cargo run -p dlock-examples-lab --example shared_pool -- --url postgres://app:secret@host/shop`;
//! without a URL it starts a private PostgreSQL server, if one is installed.

#[path = "../../given/mod.rs"]
mod given;

use std::{error::Error, time::Duration};

use dlock::{
    Locks,
    postgres::{Postgres, PostgresConfig},
};
use dlock_testlab::postgres::{Options, PostgresServer};
use sqlx::postgres::{PgPool, PgPoolOptions};

type Failure = Box<dyn Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let mut url = given::url("")?;
    let mut server = None;
    if url.is_empty() {
        let started = PostgresServer::start(&Options::new()).await;
        let started = started.map_err(|stop| {
            format!("no PostgreSQL server ({}): install one, or give its --url", stop.into_text())
        })?;
        url = started.url();
        server = Some(started);
    }
    let pool = PgPoolOptions::new().max_connections(4).connect(&url).await?;
    let config = PostgresConfig::from_pool(pool.clone())?.with_create_schema(true);
    let locks = Locks::new(Postgres::open(config).await?)?;

    // Every connection of the pool is in use: the lock waits until one becomes free.
    let mut busy = Vec::new();
    for _ in 0..4 {
        busy.push(pool.acquire().await?);
    }
    let lock = locks.mutex("inventory/42")?;
    let return_connection = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        busy.clear();
    };
    let (guard, ()) = tokio::join!(lock.lock(), return_connection);
    let guard = guard?;
    println!("locked over the pool, with token {}", guard.token());

    let held = rows(&pool).await?;
    println!("the lock is a row beside the data: {held} of them");
    guard.release().await?;
    locks.shutdown(Duration::from_secs(5)).await?;
    println!("the locks are shut down, and the pool is still open: {}", !pool.is_closed());
    if held == 0 || pool.is_closed() || rows(&pool).await? == 0 {
        return Err("the pool was not shared, or not left alone".into());
    }
    pool.close().await;
    drop(server);
    Ok(())
}

/// Counts the locks in the database, with a query of the application's own.
async fn rows(pool: &PgPool) -> Result<i64, sqlx::Error> {
    sqlx::query_scalar("SELECT count(*) FROM dlock_lock").fetch_one(pool).await
}
