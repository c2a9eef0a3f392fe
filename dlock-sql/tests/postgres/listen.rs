//! Notifications to waiters.

use dlock_core::WakeUp;
use dlock_testlab::{Stop, postgres::PostgresServer};

use crate::support::{connect, exclusive, free, granted, queue, run, start, take, until};

const LISTENERS: &str = "select pid from pg_stat_activity where query ilike 'listen%'";

/// Ends the connections that listen; how many there were.
async fn deafen(server: &PostgresServer) -> Result<usize, Stop> {
    let end = format!("select pg_terminate_backend(pid) from ({LISTENERS}) as l");
    Ok(server.query(&end).await?.len())
}

#[test]
fn a_grant_arrives_although_the_listener_was_cut_off() {
    run(async {
        let (server, client) = start().await?;
        let other = connect(&server.url()).await?;
        assert_eq!(other.guarantees().wake_up, WakeUp::Push);
        let (held, waiting) = (exclusive("a"), exclusive("a"));
        take(&client, &held).await?;
        queue(&other, &waiting).await?;
        until("it listens", async || Ok(deafen(&server).await? == 1)).await?;
        free(&client, &held).await?;
        granted(&other, &waiting).await?;
        free(&other, &waiting).await?;
        until("it listens again", async || Ok(server.query(LISTENERS).await?.len() == 1)).await
    });
}

#[test]
fn a_client_without_a_listener_is_still_granted() {
    run(async {
        let (server, client) = start().await?;
        let other = connect(&format!("{}?dlock.pooler=true", server.url())).await?;
        assert_eq!(other.guarantees().wake_up, WakeUp::Poll);
        let (held, waiting) = (exclusive("a"), exclusive("a"));
        take(&client, &held).await?;
        queue(&other, &waiting).await?;
        free(&client, &held).await?;
        granted(&other, &waiting).await?;
        let next = exclusive("a");
        queue(&client, &next).await?;
        free(&other, &waiting).await?;
        granted(&client, &next).await?;
        free(&client, &next).await
    });
}

#[test]
fn foreign_notifications_are_ignored() {
    run(async {
        let (server, client) = start().await?;
        let other = connect(&server.url()).await?;
        let (held, waiting) = (exclusive("a"), exclusive("a"));
        take(&client, &held).await?;
        queue(&other, &waiting).await?;
        until("it listens", async || Ok(server.query(LISTENERS).await?.len() == 1)).await?;
        let homes = "select distinct substring(query from 'dlock_[0-9a-f]+') \
                     from pg_stat_activity where query ilike 'listen%'";
        for home in server.query(homes).await?.concat() {
            for note in ["", "x", "00000000000000000000000000000000 1 1 1 1 a"] {
                server.run_sql(&format!("select pg_notify('{home}', '{note}')")).await?;
            }
        }
        free(&client, &held).await?;
        granted(&other, &waiting).await?;
        free(&other, &waiting).await
    });
}
