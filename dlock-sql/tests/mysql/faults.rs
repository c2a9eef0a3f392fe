//! Connections and servers that end.

use std::time::Duration;

use dlock_core::{Acquired, Renewal, Renewed};
use dlock_sql::Mysql;

use crate::support::{
    LEASE, LONG, ask, attempt, config, connect, connect_plainly, free, granted, lock, queue,
    server, take, with_mariadb,
};

#[test]
fn killed_connections_are_not_noticed() {
    with_mariadb(async {
        let server = server().await?;
        for client in [connect(&server).await?, connect_plainly(&server).await?] {
            let other = connect(&server).await?;
            let (held, waiting) = (ask("x"), ask("x"));
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
        let (held, waiting) = (ask("x"), ask("x"));
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
        let held = ask("x");
        take(&client, &held).await?;
        server.kill();
        let release = tokio::spawn(client.release(&held.as_claim()));
        server.restart().await?;
        assert_eq!(tokio::time::timeout(LONG, release).await???, dlock_core::Released::Released);
        lock(&client, &ask("x")).await?;
        Ok(())
    });
}

#[test]
fn dropped_clients_close_their_connections() {
    with_mariadb(async {
        let server = server().await?;
        let client = connect(&server).await?;
        let held = ask("x");
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
        tokio::time::timeout(LONG, closed).await?
    });
}
