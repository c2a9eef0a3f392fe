//! Locks on an application's pool.

use std::time::Duration;

use dlock_core::{Certainty, DynBackend, Error, ErrorKind};
use dlock_testlab::{
    Stop,
    client::{SOON, fails, renew, says, works, works_fully},
};
use tokio::time::timeout;

use crate::support::{
    ALTERED_SESSIONS, CONNECTION_ID, Config, Connection, Pool, PoolOptions, RENEWED, Server, Store,
    VARIANTS, WAKE_UP, client_of, end_others, exclusive, fill, free, run, server_of_few, set_up,
    take, until,
};

async fn pool(server: &Server, connections: u32) -> Result<Pool, Stop> {
    Ok(PoolOptions::new().max_connections(connections).connect(&server.url()).await?)
}

async fn open(pool: &Pool) -> Result<DynBackend, Error> {
    Store::open(Config::from_pool(pool.clone())?).await
}

async fn open_hasty(pool: &Pool) -> Result<DynBackend, Error> {
    let config = Config::from_pool(pool.clone())?;
    Store::open(config.with_response_timeout(Duration::from_secs(5))).await
}

async fn id(connection: &mut Connection) -> Result<i64, Stop> {
    Ok(sqlx::query_scalar(CONNECTION_ID).fetch_one(connection).await?)
}

#[test]
fn a_pool_of_one_connection_is_enough() {
    run(async {
        let server = set_up().await?;
        let pool = pool(&server, 1).await?;
        for vary in VARIANTS {
            let client = Store::open(vary(Config::from_pool(pool.clone())?)).await?;
            assert_eq!(client.guarantees().wake_up, WAKE_UP);
            assert_eq!(client.store(), client_of(&server).await?.store());
            works_fully(&client, &open(&pool).await?, "a").await?;
        }
        // The connection returns to the pool after each statement.
        let mut connection = timeout(SOON, pool.acquire()).await??;
        sqlx::raw_sql("SELECT 1").execute(&mut *connection).await?;
        Ok(())
    });
}

#[test]
fn an_exhausted_pool_does_not_cost_a_lock() {
    run(async {
        let server = set_up().await?;
        let pool = pool(&server, 1).await?;
        let client = open_hasty(&pool).await?;
        let held = exclusive("a");
        take(&client, &held).await?;
        let exhausted = pool.acquire().await?;
        renew(&client, &held).await?;
        let error = fails(&client, &exclusive("b")).await?;
        says(&error, ErrorKind::Unavailable, "make the pool larger");
        assert_eq!(error.certainty(), Certainty::NotApplied);
        drop(exhausted);
        free(&client, &held).await
    });
}

/// Another program uses up the connections of the server, and the application's pool works.
#[test]
fn a_full_server_does_not_cost_a_lock_of_a_pool() {
    run(async {
        let server = server_of_few().await?;
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
        let mut exhausted = (pool.acquire().await?, pool.acquire().await?);
        let ids = [id(&mut exhausted.0).await?, id(&mut exhausted.1).await?];
        let mut error = None;
        until("there is no connection for it", async || {
            error = renew(&client, &held).await.err().map(Stop::into_text);
            if error.is_none() {
                // It got the place of a connection that ended late.
                others.clear();
                end_others(&server, &ids).await?;
                others = fill(&server).await?;
            }
            Ok(error.is_some())
        })
        .await?;
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

#[test]
fn a_renewal_over_the_pool_uses_no_altered_session() {
    run(async {
        for left in ALTERED_SESSIONS {
            let server = server_of_few().await?;
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

#[test]
fn a_pool_stays_usable_after_a_dropped_statement() {
    run(async {
        let server = set_up().await?;
        let options = PoolOptions::new().max_connections(1).test_before_acquire(false);
        let pool = options.connect(&server.url()).await?;
        let client = open_hasty(&pool).await?;
        works(&client, "a").await?;
        server.pause()?;
        let error = fails(&client, &exclusive("a")).await;
        server.resume()?;
        let error = error?;
        says(&error, ErrorKind::Unavailable, "check whether the server answers");
        assert_eq!(error.certainty(), Certainty::NotApplied);
        works(&client, "b").await?;
        assert_eq!(sqlx::raw_sql("SELECT 7").fetch_all(&pool).await?.len(), 1);
        Ok(())
    });
}

#[test]
fn locks_outlive_their_pool() {
    run(async {
        let server = set_up().await?;
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
        works_fully(&client, &client_of(&server).await?, "a").await?;
        // All of this used few connections.
        assert!(server.connections().await? <= 6);
        Ok(())
    });
}
