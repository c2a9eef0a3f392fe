//! Servers that accept no writes: an overloaded one, and one after a switchover.

use std::time::Duration;

use dlock_core::{Acquired, DynBackend};
use dlock_sql::Mysql;
use dlock_testlab::{Proxy, Stop, mariadb::MariadbServer};
use tokio::time::{sleep, timeout};

use crate::support::{
    LONG, ask, assert_unavailable, attempt, config, connect, free, queue, server, take,
    with_mariadb,
};

/// More than the pauses between them let be, and a fraction of what there were without pauses.
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
        let first = ask("a");
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
        let again = ask("b");
        take(&client, &again).await?;
        free(&client, &again).await
    });
}

/// The old server goes on answering reads on connections that stay open.
#[test]
fn a_reader_follows_a_switchover() {
    with_mariadb(async {
        let (old, new) = (server().await?, server().await?);
        let (proxy, client) = through(&old).await?;
        let direct = connect(&new).await?;
        let on_new = ask("x");
        take(&direct, &on_new).await?;
        // It reads while somebody waits, and for onlookers.
        let (held, waits) = (ask("y"), ask("y"));
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
        timeout(LONG, follows).await.map_err(late)?;
        assert_eq!(client.acquire(&attempt("x")).await?, Acquired::Busy);
        waiting.abort();
        Ok(())
    });
}
