//! Connections and servers that end.

use std::time::Duration;

use dlock_core::{Acquired, DynBackend, Error};
use dlock_testlab::client::{granted, queue, renew, works};

use crate::support::{
    Server, Store, VARIANTS, attempt, client_of, config, exclusive, free, run, set_up, take, until,
};

/// A client that waits for long until a server has started again.
async fn patient(server: &Server) -> Result<DynBackend, Error> {
    let config = config(&server.url())?;
    Store::open(config.with_response_timeout(Duration::from_secs(30))).await
}

#[test]
fn connections_that_the_server_ends_cost_no_lock() {
    run(async {
        let server = set_up().await?;
        for vary in VARIANTS {
            let client = Store::open(vary(config(&server.url())?)).await?;
            let other = client_of(&server).await?;
            let [held, waiting, last] = ["a"; 3].map(exclusive);
            take(&client, &held).await?;
            queue(&other, &waiting).await?;
            let waits = tokio::spawn({
                let (other, waiting) = (other.clone(), waiting.clone());
                async move { granted(&other, &waiting).await }
            });
            for _ in 0..5 {
                server.terminate_backends().await?;
                renew(&client, &held).await?;
                assert_eq!(client.acquire(&attempt("a")).await?, Acquired::Busy);
                assert!(!waits.is_finished(), "a held lock was granted");
            }
            queue(&client, &last).await?;
            server.terminate_backends().await?;
            free(&client, &held).await?;
            server.terminate_backends().await?;
            waits.await??;
            free(&other, &waiting).await?;
            granted(&client, &last).await?;
            free(&client, &last).await?;
        }
        Ok(())
    });
}

#[test]
fn a_killed_server_keeps_holders_and_waiters() {
    run(async {
        let server = set_up().await?;
        let (client, other) = (patient(&server).await?, patient(&server).await?);
        let (held, waiting) = (exclusive("a"), exclusive("a"));
        let first = take(&client, &held).await?;
        queue(&other, &waiting).await?;
        let waits = tokio::spawn({
            let (other, waiting) = (other.clone(), waiting.clone());
            async move { granted(&other, &waiting).await }
        });
        server.kill();
        server.restart().await?;
        renew(&client, &held).await?;
        assert_eq!(client.acquire(&attempt("a")).await?, Acquired::Busy);
        assert!(!waits.is_finished());
        free(&client, &held).await?;
        let second = waits.await??;
        assert!(second.token > first.token, "{second:?}");
        free(&other, &waiting).await
    });
}

#[test]
fn an_operation_waits_for_a_server_that_starts_again() {
    run(async {
        let server = set_up().await?;
        let client = patient(&server).await?;
        let held = exclusive("a");
        server.stop().await?;
        let (taken, restarted) = tokio::join!(take(&client, &held), server.restart());
        restarted?;
        taken?;
        server.kill();
        let (released, restarted) = tokio::join!(free(&client, &held), server.restart());
        restarted?;
        released?;
        works(&client, "a").await
    });
}

#[test]
fn a_dropped_client_closes_its_connections() {
    run(async {
        let server = set_up().await?;
        let client = client_of(&server).await?;
        works(&client, "a").await?;
        drop(client);
        until("all connections are closed", async || Ok(server.connections().await? == 0)).await
    });
}
