//! Many concurrent acquires, and the releases of the same client.

use dlock_core::Acquired;
use dlock_testlab::{Flow, Proxy, postgres::PostgresServer};
use sqlx::{Connection as _, PgConnection};
use tokio::task::JoinSet;

use crate::support::{connect, exclusive, free, run, start, take, until};

/// How many come at once.
const CROWD: usize = 2000;
/// The operations of a sent statement and of the one behind it: 64 each.
const BEFORE: i64 = 128;

/// How many locks of the crowd were written before the last write to this one.
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
