//! The number of connections of a client.

use std::time::Duration;

use dlock_core::WakeUp;
use dlock_testlab::{
    Proxy, Stop,
    postgres::{Options, PostgresServer},
};
use tokio::task::JoinSet;

use crate::support::{
    attempt, connect, create, exclusive, free, granted, queue, renew, run, start, take, until,
    works,
};

#[test]
fn a_client_opens_connections_as_it_needs_them() {
    run(async {
        let (server, other) = start().await?;
        let proxy = Proxy::start(&server.address()).await?;
        let url = server.url().replace(&server.address(), &proxy.address());
        let client = connect(&format!("{url}?dlock.response_timeout=30s")).await?;
        let attempted = attempt("try");
        take(&client, &attempted).await?;
        free(&client, &attempted).await?;
        assert_eq!(proxy.connections(), 1);
        for name in ["a", "b", "c", "d", "e", "f"] {
            // Names of all writers, one after another.
            take(&client, &attempt(name)).await?;
            works(&client, &format!("{name}2")).await?;
            client.inspect(&attempt(name).name).await?;
        }
        // The sweep may run at the same time.
        assert!(proxy.connections() <= 2, "{}", proxy.connections());
        assert_eq!(client.guarantees().wake_up, WakeUp::Push);
        let (held, waiting) = (exclusive("x"), exclusive("x"));
        take(&other, &held).await?;
        queue(&client, &waiting).await?;
        until("it listens", async || {
            let listens = "select 1 from pg_stat_activity where query ilike 'listen%'";
            Ok(server.query(listens).await?.len() == 1)
        })
        .await?;
        free(&other, &held).await?;
        granted(&client, &waiting).await?;
        renew(&client, &waiting).await?;
        free(&client, &waiting).await?;
        // One more for LISTEN, and one while a poll and a write were at the same time.
        assert!(proxy.connections() <= 4, "{}", proxy.connections());
        Ok(())
    });
}

/// As many clients as a server has connections would leave no room for second ones.
#[test]
fn twice_as_many_clients_as_connections_get_their_locks() {
    run(async {
        let server = PostgresServer::start(&Options::new().with_max_connections(30)).await?;
        connect(&create(&server)).await?;
        let mut clients = JoinSet::new();
        for number in 0..60 {
            let url = format!("{}?dlock.response_timeout=60s", server.url());
            clients.spawn(async move {
                let client = connect(&url).await?;
                let held = exclusive(&format!("job {number}"));
                take(&client, &held).await?;
                tokio::time::sleep(Duration::from_millis(50)).await;
                renew(&client, &held).await?;
                free(&client, &held).await
            });
        }
        while let Some(ended) = clients.join_next().await {
            ended.map_err(|error| Stop::failed(error.to_string()))??;
        }
        Ok(())
    });
}
