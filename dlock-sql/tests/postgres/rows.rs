//! The rows in the table, their deletion, and rows of an unknown format.

use std::time::Duration;

use dlock_core::{AcquireRequest, DynBackend, Renewal, Renewed};
use dlock_sql::Postgres;
use dlock_testlab::{Stop, Verdict, postgres::PostgresServer};

use crate::support::{
    config, connect, create, exclusive, free, queue, renew, run, server, start, start_pooler, take,
    until, works,
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

/// Each client lives for one lock, and the name decides which of its connections writes.
#[test]
fn short_lived_clients_delete_rows_whatever_name_they_use() {
    run(async {
        let server = server().await?;
        drop(connect(&create(&server)).await?);
        let config = config(&server.url())?.with_retention(SECOND).with_connections(4);
        for name in ["a", "b", "c", "d", "e", "f", "g", "h"] {
            let old = "INSERT INTO dlock_lock SELECT 'old' || n, 1000000, 0, 0, '', \
                       'R 00000000000000000000000000000001 0 1000000;' FROM generate_series(1, 300) n";
            server.run_sql(old).await?;
            let mut clients = 0;
            let left = "SELECT 1 FROM dlock_lock WHERE name LIKE 'old%'";
            while !server.query(left).await?.is_empty() {
                clients += 1;
                assert!(clients <= 60, "old rows are left with {name}");
                works(&Postgres::open(config.clone()).await?, name).await?;
            }
        }
        Ok(())
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

/// Changes that keep the base. Of a snapshot that a client knows, the server compares the length.
const CHANGES_OF_ONE_BASE: [(&str, &str); 3] = [
    ("snap = left(snap, -1)", "no version of dlock writes"),
    ("snap = 'v9 1 1;'", "has format 9"),
    ("log = left(log, -1)", "no version of dlock writes"),
];

#[test]
fn rows_that_a_client_knew_fail_in_an_unknown_format() {
    run(async {
        let server = server().await?;
        let changes = [crate::formats::CHANGES, CHANGES_OF_ONE_BASE].concat();
        for option in ["", "&dlock.pooler=true"] {
            let client = connect(&format!("{}{option}", create(&server))).await?;
            let run = async |sql: String| server.run_sql(&sql).await;
            let row = async || {
                let row = server.query("SELECT base, snap, log FROM dlock_lock WHERE name = 'a'");
                Ok(format!("{:?}", row.await?))
            };
            let fail = crate::formats::fail_where_the_client_knows_another;
            fail(&client, &changes, run, row).await?;
        }
        Ok(())
    });
}

/// Renews locks with a new client, this often. Returns how many blocks of long values, which are
/// stored apart from the rows, the server has read for that.
async fn blocks_read(
    server: &PostgresServer,
    locks: &[&AcquireRequest],
    times: usize,
) -> Result<i64, Stop> {
    let blocks = "SELECT toast_blks_read + toast_blks_hit FROM pg_statio_user_tables \
                  WHERE relname = 'dlock_lock'";
    let blocks = async || Ok::<i64, Stop>(server.query(blocks).await?[0][0].parse()?);
    let before = blocks().await?;
    let client = connect(&server.url()).await?;
    let renewals: Vec<_> =
        locks.iter().map(|lock| Renewal::new(lock.as_claim(), lock.mode, lock.lease)).collect();
    for _ in 0..times {
        let renewed = client.renew(&renewals).await?;
        assert!(renewed.iter().all(|renewed| *renewed == Renewed::Kept), "{renewed:?}");
    }
    drop(client);
    // A session reports its statistics when it ends.
    let sessions = "SELECT 1 FROM pg_stat_activity WHERE usename = 'dlock'";
    until("it has gone", async || Ok(server.query(sessions).await?.is_empty())).await?;
    Ok(blocks().await? - before)
}

#[test]
fn a_snapshot_that_a_client_knows_is_not_read_again() {
    run(async {
        let (server, client) = start().await?;
        let (held, other) = (exclusive("a"), exclusive("b"));
        take(&client, &held).await?;
        take(&client, &other).await?;
        for _ in 0..100 {
            queue(&client, &exclusive("a")).await?;
        }
        drop(client);
        // A new snapshot would have to be read, so these tests begin with a short log.
        let is_short = "SELECT 1 FROM dlock_lock WHERE name = 'a' AND length(log) < 200";
        for locks in [&[&held][..], &[&held, &other]] {
            let client = connect(&server.url()).await?;
            while server.query(is_short).await?.is_empty() {
                renew(&client, &held).await?;
            }
            drop(client);
            let once = blocks_read(&server, locks, 1).await?;
            assert!(once > 0, "no client knows the snapshot at first");
            assert_eq!(blocks_read(&server, locks, 5).await?, once, "{} locks", locks.len());
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
