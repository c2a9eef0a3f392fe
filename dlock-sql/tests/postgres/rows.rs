//! The rows in the table, their deletion, and rows that can't be read or written.

use std::time::Duration;

use dlock_core::{AcquireRequest, DynBackend, Renewal, Renewed};
use dlock_sql::Postgres;
use dlock_testlab::{Verdict, postgres::PostgresServer};

use crate::support::{
    config, connect, create, exclusive, free, run, server, start, start_pooler, take, until, works,
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

fn renewal(request: &AcquireRequest) -> Renewal {
    let AcquireRequest { mode, lease, .. } = *request;
    Renewal::new(request.as_claim(), mode, lease)
}

/// Renews many locks at once, after this statement has changed the row of the last one.
async fn renews_the_others(server: &PostgresServer, client: &DynBackend, change: &str) -> Verdict {
    let held: Vec<_> = (0..30).map(|n| exclusive(&format!("l{n:03}"))).collect();
    for held in &held {
        take(client, held).await?;
    }
    server.run_sql(change).await?;
    let renewals: Vec<_> = held.iter().map(renewal).collect();
    let renewed = client.renew(&renewals).await?;
    assert_eq!(renewed[..29], [Renewed::Kept; 29]);
    assert_eq!(renewed[29], Renewed::Unknown);
    // A renewal of that lock alone returns the error.
    assert!(client.renew(&renewals[29..]).await.is_err());
    Ok(())
}

#[test]
fn an_unreadable_record_costs_no_other_lock() {
    run(async {
        let server = server().await?;
        let client = connect(&create(&server)).await?;
        let spoil = "UPDATE dlock_lock SET snap = 'v9 1 1;', log = '' WHERE name = 'l029'";
        renews_the_others(&server, &client, spoil).await
    });
}

/// The server itself refuses to write one of the rows.
#[test]
fn an_unwritable_row_costs_no_other_lock() {
    run(async {
        let server = server().await?;
        let client = connect(&create(&server)).await?;
        let refuse = "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS \
                      $$ BEGIN RAISE 'not this one'; END $$; \
                      CREATE TRIGGER refuse BEFORE UPDATE ON dlock_lock FOR EACH ROW \
                      WHEN (OLD.name = 'l029') EXECUTE FUNCTION refuse()";
        renews_the_others(&server, &client, refuse).await
    });
}

#[test]
fn rows_of_an_unknown_format_fail_and_stay_unchanged() {
    run(async {
        let server = server().await?;
        for option in ["", "&dlock.pooler=true"] {
            let client = connect(&format!("{}{option}", create(&server))).await?;
            let run = async |sql: String| server.run_sql(&sql).await;
            let row = async || {
                let row = server.query("SELECT base, snap, log FROM dlock_lock WHERE name = 'a'");
                Ok(format!("{:?}", row.await?))
            };
            crate::formats::fail_and_stay_unchanged(&client, run, row).await?;
        }
        Ok(())
    });
}

#[test]
fn golden_rows_are_written_and_read() {
    run(async {
        let server = server().await?;
        let (writer, reader) = (connect(&create(&server)).await?, connect(&server.url()).await?);
        let golden = include_str!("../golden/postgres-format-1.txt");
        let rows = "SELECT name, snap, log FROM dlock_lock ORDER BY name";
        let rows = async || server.query(rows).await;
        let run = async |sql: String| server.run_sql(&sql).await;
        crate::golden::written_and_read(&writer, &reader, golden, rows, run).await
    });
}
