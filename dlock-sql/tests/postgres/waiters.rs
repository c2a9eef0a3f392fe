//! Notifications to waiters, and many concurrent acquires.

use dlock_core::{Acquired, WakeUp};
use dlock_testlab::{Flow, Proxy, Stop, postgres::PostgresServer};
use sqlx::{Connection as _, PgConnection};
use tokio::task::JoinSet;

use crate::support::{connect, exclusive, free, granted, queue, run, start, take, until};

const LISTENERS: &str = "select pid from pg_stat_activity where query ilike 'listen%'";

/// Ends the connections that listen. Returns their number.
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

/// The number of concurrent acquires.
const CROWD: usize = 2000;
/// The operations of a sent statement and of the one behind it: 64 each.
const BEFORE: i64 = 128;

/// Returns the number of locks of the crowd that were written before the last write to this one.
async fn written_before(server: &PostgresServer, name: &str) -> sqlx::Result<i64> {
    let mut other = PgConnection::connect(&server.admin_url()).await?;
    sqlx::query_scalar(
        "SELECT count(*) FROM dlock_lock WHERE name LIKE 'crowd-%' AND xmin::text::bigint < \
         (SELECT xmin::text::bigint FROM dlock_lock WHERE name = $1)",
    )
    .bind(name)
    .fetch_one(&mut other)
    .await
}

#[test]
fn a_release_does_not_wait_behind_a_crowd_of_acquires() {
    run(async {
        let (server, _) = start().await?;
        let proxy = Proxy::start(&server.address()).await?;
        let url = server.url().replace(&server.address(), &proxy.address());
        let url = format!("{url}?dlock.response_timeout=60s&dlock.connections=1");
        let client = connect(&url).await?;
        let held = exclusive("held");
        take(&client, &held).await?;
        // The sent statement waits, and later requests wait for it.
        proxy.requests(Flow::Hold);
        let before = proxy.held_bytes();
        let mut crowd = JoinSet::new();
        for n in 0..CROWD {
            let (client, request) = (client.clone(), exclusive(&format!("crowd-{n}")));
            crowd.spawn(async move { client.acquire(&request).await });
        }
        until("the first are sent", async || Ok(proxy.held_bytes() > before)).await?;
        let (freed, passed) = tokio::join!(free(&client, &held), proxy.pass());
        passed?;
        freed?;
        for answer in crowd.join_all().await {
            assert!(matches!(answer?, Acquired::Granted(_)));
        }
        let before = written_before(&server, "held").await?;
        assert!(before <= BEFORE, "{before} of {CROWD} were written before the release");
        Ok(())
    });
}
