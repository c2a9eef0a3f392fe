//! Servers that accept no writes, and rows that another program locks.

use std::time::Duration;

use dlock_core::{Acquired, Certainty, DynBackend};
use dlock_sql::Mysql;
use dlock_testlab::{Proxy, Stop, mariadb::MariadbServer};
use sqlx::{Connection, Executor, MySqlConnection};
use tokio::time::{sleep, timeout};

use crate::support::{
    SOON, assert_unavailable, attempt, config, connect, exclusive, free, lock, queue, server, take,
    with_mariadb,
};

/// More attempts than the pauses permit, and a fraction of the number without pauses.
const FEW: u64 = 16;

async fn through(server: &MariadbServer) -> Result<(Proxy, DynBackend), Stop> {
    let proxy = Proxy::start(&server.address()).await?;
    let url = server.url().replace(&server.address(), &proxy.address());
    let client = Mysql::open(config(&format!("{url}?dlock.connections=1"))?).await?;
    Ok((proxy, client))
}

#[test]
fn a_read_only_server_gets_few_connections() {
    with_mariadb(async {
        let server = server().await?;
        let (proxy, client) = through(&server).await?;
        let first = exclusive("a");
        take(&client, &first).await?;
        free(&client, &first).await?;
        server.run_sql("SET GLOBAL read_only = 1").await?;
        let before = proxy.connections();
        let error = client.acquire(&attempt("b")).await.err();
        let error = error.ok_or_else(|| Stop::failed("it was written"))?;
        assert_unavailable(&error, "address of the primary");
        let made = proxy.connections() - before;
        assert!(made <= FEW, "{made} connections for one try");
        server.run_sql("SET GLOBAL read_only = 0").await?;
        let again = exclusive("b");
        take(&client, &again).await?;
        free(&client, &again).await
    });
}

/// The old server continues to answer reads on connections that stay open.
#[test]
fn a_reader_follows_a_switchover() {
    with_mariadb(async {
        let (old, new) = (server().await?, server().await?);
        let (proxy, client) = through(&old).await?;
        let direct = connect(&new).await?;
        let on_new = exclusive("x");
        take(&direct, &on_new).await?;
        // The client reads for its waiters, and for `inspect`.
        let (held, waits) = (exclusive("y"), exclusive("y"));
        take(&client, &held).await?;
        queue(&client, &waits).await?;
        let waiting = tokio::spawn({
            let client = client.clone();
            async move { client.granted(&waits).await.map(drop) }
        });
        assert!(client.inspect(&on_new.name).await?.is_free());
        old.run_sql("SET GLOBAL read_only = 1").await?;
        proxy.lead_to(&new.address());
        let follows = async {
            while !client.inspect(&on_new.name).await.is_ok_and(|seen| !seen.is_free()) {
                sleep(Duration::from_millis(50)).await;
            }
        };
        let late = |_| Stop::failed("it reads from the old server");
        timeout(SOON, follows).await.map_err(late)?;
        assert_eq!(client.acquire(&attempt("x")).await?, Acquired::Busy);
        waiting.abort();
        Ok(())
    });
}

#[test]
fn a_row_locked_for_too_long_is_unavailable_and_unchanged() {
    with_mariadb(async {
        let server = server().await?;
        let first = exclusive("x");
        let patient = connect(&server).await?;
        lock(&patient, &first).await?;
        free(&patient, &first).await?;

        let config = config(&server.url())?.with_response_timeout(Duration::from_secs(5));
        let client = Mysql::open(config).await?;
        let mut other = MySqlConnection::connect(&server.url()).await?;
        for grip in [
            "BEGIN; SELECT * FROM dlock_lock WHERE name = 'x' FOR UPDATE",
            "LOCK TABLES dlock_lock READ",
        ] {
            other.execute(sqlx::raw_sql(grip)).await?;
            let request = exclusive("x");
            let error = client.acquire(&request).await.expect_err("locked");
            assert_unavailable(&error, "another program locks dlock's table");
            assert_eq!(error.certainty(), Certainty::NotApplied);
            other.execute("ROLLBACK").await?;
            other.execute("UNLOCK TABLES").await?;
            lock(&client, &request).await?;
            free(&client, &request).await?;
        }
        Ok(())
    });
}

#[test]
fn a_row_locked_for_a_while_only_takes_longer() {
    with_mariadb(async {
        let server = server().await?;
        let client = connect(&server).await?;
        let (first, second) = (exclusive("x"), exclusive("x"));
        lock(&client, &first).await?;
        let mut other = MySqlConnection::connect(&server.url()).await?;
        let grip = "BEGIN; SELECT * FROM dlock_lock WHERE name = 'x' FOR UPDATE";
        other.execute(sqlx::raw_sql(grip)).await?;
        let release = tokio::spawn(client.release(&first.as_claim()));
        sleep(Duration::from_millis(300)).await;
        assert!(!release.is_finished());
        other.execute("ROLLBACK").await?;
        timeout(SOON, release).await???;
        lock(&client, &second).await?;
        Ok(())
    });
}
