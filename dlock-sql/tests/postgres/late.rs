//! Requests that arrive after their connection was closed, in forms that only PostgreSQL has.

use std::time::Duration;

use dlock_core::Acquired;
use dlock_testlab::{
    Proxy, SteppedClock,
    postgres::{Options, PostgresServer},
};

use crate::{
    servers::late::{ask_in_vain, until_idle},
    support::{attempt, connect, create, exclusive, free, run, start, take, works},
};

/// After a forward clock step, all deadlines have passed: each request is retried once.
#[test]
fn a_waiter_retries_once_after_a_clock_step() {
    run(async {
        let clock = SteppedClock::start().await?;
        let server = PostgresServer::start(&Options::new().with_clock(&clock)).await?;
        let client = connect(&create(&server)).await?;
        works(&client, "a").await?;
        let held = exclusive("held");
        take(&client, &held).await?;
        clock.forward(Duration::from_secs(3600))?;
        for (lock, sent) in [("b", 2), ("c", 1)] {
            let next = attempt(lock);
            // A request without a deadline is answered as usual.
            let released = client.release(&held.as_claim());
            let (taken, released) = tokio::join!(take(&client, &next), released);
            taken?;
            released?;
            let read = format!("SELECT log FROM dlock_lock WHERE name = '{lock}'");
            let log = server.query(&read).await?.concat().concat();
            assert_eq!(log.matches(&next.claim.to_string()).count(), sent, "{log}");
            free(&client, &next).await?;
        }
        works(&client, "a").await
    });
}

/// A late statement takes effect in a session that ends with its connection.
#[test]
fn a_late_advisory_lock_ends_with_its_session() {
    run(async {
        let (server, _) = start().await?;
        let advisory = "dlock.advisory=true&dlock.create_schema=true&dlock.response_timeout=60s";
        let other = connect(&format!("{}?{advisory}", server.url())).await?;
        let proxy = Proxy::start(&server.address()).await?;
        let url = server.url().replace(&server.address(), &proxy.address());
        let client = connect(&format!("{url}?{advisory}")).await?;
        let request = attempt("a");
        take(&client, &request).await?;
        free(&client, &request).await?;
        let request = attempt("a");
        let asking = ask_in_vain(&proxy, &client, &request).await?;
        proxy.abandon();
        assert!(matches!(asking.await??, Acquired::Granted(_)));
        free(&client, &request).await?;
        proxy.arrive();
        until_idle(&server).await?;
        take(&other, &attempt("a")).await.map(drop)
    });
}
