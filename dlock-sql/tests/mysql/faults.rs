//! Connections and servers that end, and servers that accept no writes.

use std::time::Duration;

use dlock_core::{Acquired, DynBackend, Renewal, Renewed};
use dlock_sql::Mysql;
use dlock_testlab::{Proxy, Stop, mariadb::MariadbServer};
use tokio::time::{sleep, timeout};

use crate::support::{
    LEASE, SOON, assert_unavailable, attempt, config, connect, connect_plainly, exclusive, free,
    granted, lock, queue, server, take, with_mariadb,
};

#[test]
fn killed_connections_are_not_noticed() {
    with_mariadb(async {
        let server = server().await?;
        for client in [connect(&server).await?, connect_plainly(&server).await?] {
            let other = connect(&server).await?;
            let (held, waiting) = (exclusive("x"), exclusive("x"));
            take(&client, &held).await?;
            queue(&other, &waiting).await?;
            let waits = {
                let (other, waiting) = (other.clone(), waiting.clone());
                tokio::spawn(async move { granted(&other, &waiting).await })
            };
            for _ in 0..5 {
                server.terminate_backends().await?;
                let claim = held.as_claim();
                let renewal = Renewal::new(claim, held.mode, LEASE);
                assert_eq!(client.renew(&[renewal]).await?, [Renewed::Kept]);
                assert_eq!(client.acquire(&attempt("x")).await?, Acquired::Busy);
            }
            server.terminate_backends().await?;
            free(&client, &held).await?;
            waits.await??;
            free(&other, &waiting).await?;
        }
        Ok(())
    });
}

#[test]
fn a_killed_server_comes_back_with_its_locks() {
    with_mariadb(async {
        let server = server().await?;
        let patient = config(&server.url())?.with_response_timeout(Duration::from_secs(30));
        let (a, b) = (Mysql::open(patient.clone()).await?, Mysql::open(patient).await?);
        let (held, waiting) = (exclusive("x"), exclusive("x"));
        let first = take(&a, &held).await?;
        queue(&b, &waiting).await?;
        let waits = {
            let (b, waiting) = (b.clone(), waiting.clone());
            tokio::spawn(async move { granted(&b, &waiting).await })
        };
        server.kill();
        server.restart().await?;
        assert_eq!(a.acquire(&attempt("x")).await?, Acquired::Busy);
        free(&a, &held).await?;
        let second = waits.await??;
        assert!(second.token > first.token, "{second:?}");
        Ok(())
    });
}

#[test]
fn a_release_while_the_server_restarts_is_done() {
    with_mariadb(async {
        let server = server().await?;
        let patient = config(&server.url())?.with_response_timeout(Duration::from_secs(30));
        let client = Mysql::open(patient).await?;
        let held = exclusive("x");
        take(&client, &held).await?;
        server.kill();
        let release = tokio::spawn(client.release(&held.as_claim()));
        server.restart().await?;
        assert_eq!(tokio::time::timeout(SOON, release).await???, dlock_core::Released::Released);
        lock(&client, &exclusive("x")).await?;
        Ok(())
    });
}

#[test]
fn dropped_clients_close_their_connections() {
    with_mariadb(async {
        let server = server().await?;
        let client = connect(&server).await?;
        let held = exclusive("x");
        take(&client, &held).await?;
        free(&client, &held).await?;
        drop(client);
        let count = "SELECT COUNT(*) FROM information_schema.processlist WHERE user = 'dlock'";
        let closed = async {
            while server.query(count).await?.concat() != ["0"] {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            Ok(())
        };
        tokio::time::timeout(SOON, closed).await?
    });
}

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
