//! The rows in the table, and their deletion.

use std::time::Duration;

use dlock_core::DynBackend;
use dlock_sql::Postgres;
use dlock_testlab::{Verdict, postgres::PostgresServer};

use crate::support::{
    config, create, exclusive, free, run, server, start, start_pooler, take, until, works,
};

const SECOND: Duration = Duration::from_secs(1);

async fn rows_go(server: &PostgresServer, client: &DynBackend) -> Verdict {
    let held = exclusive("held").with_lease(Duration::from_secs(3600));
    take(client, &held).await?;
    for n in 0..300 {
        works(client, &format!("n{n}")).await?;
    }
    let names = "select name from dlock_lock";
    until("unused rows are gone", async || Ok(server.query(names).await? == [["held"]])).await?;
    free(client, &held).await?;
    works(client, "n1").await
}

#[test]
fn rows_of_unused_locks_are_deleted() {
    run(async {
        let server = server().await?;
        let config = config(&create(&server))?.with_retention(SECOND);
        rows_go(&server, &Postgres::open(config).await?).await
    });
}

#[test]
fn rows_of_unused_locks_are_deleted_behind_a_pooler() {
    run(async {
        let (server, bouncer) = start_pooler(&[]).await?;
        let config = config(&bouncer.url())?.with_pooler(true).with_retention(SECOND);
        rows_go(&server, &Postgres::open(config).await?).await
    });
}

#[test]
fn a_row_stays_short_however_often_its_lock_is_used() {
    run(async {
        let (server, client) = start().await?;
        for _ in 0..200 {
            works(&client, "a").await?;
        }
        let sizes = server.query("select length(snap), length(log) from dlock_lock").await?;
        for size in sizes.concat() {
            assert!(size.parse::<usize>()? < 1000, "{size}");
        }
        Ok(())
    });
}

#[test]
fn tokens_grow_after_the_row_was_deleted() {
    run(async {
        let (server, client) = start().await?;
        let first = exclusive("a");
        let before = take(&client, &first).await?;
        free(&client, &first).await?;
        server.run_sql("delete from dlock_lock").await?;
        let after = take(&client, &exclusive("a")).await?;
        assert!(after.token > before.token, "{before:?} {after:?}");
        Ok(())
    });
}
