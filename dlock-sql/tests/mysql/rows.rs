//! The rows in the table, their deletion, and rows that are not locks or can't be read.

use std::time::Duration;

use dlock_core::{ConfigIssue, DynBackend, ErrorKind};
use dlock_sql::{Mysql, MysqlConfig};
use dlock_testlab::{
    Stop, Verdict,
    mariadb::{MariadbServer, Options},
};
use tokio::time::{sleep, timeout};

use super::sessions::pool_after;
use crate::support::{
    SOON, attempt, config, connect, exclusive, free, lock, queue, server, server_with, take,
    with_mariadb,
};

async fn count(server: &MariadbServer) -> Result<String, Stop> {
    Ok(server.query("SELECT COUNT(*) FROM dlock_lock").await?.concat().concat())
}

#[test]
fn rows_of_unused_locks_are_removed_after_their_retention() {
    with_mariadb(async {
        let server = server().await?;
        let config = config(&server.url())?.with_retention(Duration::from_secs(1));
        let client = Mysql::open(config).await?;
        let mut last = None;
        for n in 0..300 {
            let request = exclusive(&format!("ä {n}"));
            last = Some(take(&client, &request).await?.token);
            free(&client, &request).await?;
        }
        let held = exclusive("held").with_lease(Duration::from_secs(3600));
        take(&client, &held).await?;
        let removed = async {
            while count(&server).await? != "1" {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            Ok::<_, Stop>(())
        };
        tokio::time::timeout(SOON, removed).await??;
        assert_eq!(server.query("SELECT name FROM dlock_lock").await?.concat(), ["held"]);
        assert!(Some(take(&client, &exclusive("ä 299")).await?.token) > last);
        Ok(())
    });
}

#[test]
fn a_row_stays_small_however_often_it_is_used() {
    with_mariadb(async {
        let server = server().await?;
        for returning in [true, false] {
            let config = config(&server.url())?.with_returning(returning);
            let (a, b) = (Mysql::open(config.clone()).await?, Mysql::open(config).await?);
            for _ in 0..60 {
                for client in [&a, &b] {
                    let request = exclusive("x");
                    lock(client, &request).await?;
                    free(client, &request).await?;
                }
            }
            let sizes = server.query("SELECT LENGTH(snap), LENGTH(log) FROM dlock_lock").await?;
            for size in sizes.concat() {
                assert!(size.parse::<usize>()? < 2000, "{size}");
            }
        }
        Ok(())
    });
}

#[test]
fn a_deleted_row_starts_again() {
    with_mariadb(async {
        let server = server().await?;
        let client = connect(&server).await?;
        for n in 0..8 {
            let request = exclusive("x");
            lock(&client, &request).await?;
            if n % 3 == 2 {
                server.run_sql("DELETE FROM dlock_lock").await?;
                continue;
            }
            free(&client, &request).await?;
        }
        Ok(())
    });
}

#[test]
fn a_foreign_row_is_an_error_and_not_a_lock() {
    with_mariadb(async {
        let server = server().await?;
        let client = connect(&server).await?;
        for (snap, kind) in [("X'ff'", "UTF-8"), ("'v9 0 0;'", "has format 9")] {
            let sql = format!("REPLACE INTO dlock_lock VALUES ('x', 1, 0, 0, {snap}, '')");
            server.run_sql(&sql).await?;
            let error = client.acquire(&attempt("x")).await.expect_err("not a row of ours");
            assert_eq!(error.kind(), ErrorKind::Protocol, "{error}");
            assert!(error.to_string().contains(kind), "{error}");
        }
        // The text of a log may also be longer than its column permits.
        let sql = "ALTER TABLE dlock_lock MODIFY log VARBINARY(10) NOT NULL";
        server.run_sql(&format!("DELETE FROM dlock_lock; {sql}")).await?;
        let error = client.acquire(&attempt("x")).await.expect_err("does not fit");
        assert_eq!(error.kind(), ErrorKind::Config(ConfigIssue::ForeignStore), "{error}");
        Ok(())
    });
}

/// Inserts more idle rows than a page has, on both sides of the rows under test.
async fn fill(server: &MariadbServer) -> Verdict {
    let rows: Vec<String> = (0..600)
        .map(|n| {
            let side = if n < 300 { 'a' } else { 'c' };
            format!("('{side}{n:04}', 1000000, 0, 0, '', 'R {n:032x} 0 1000000;')")
        })
        .collect();
    server.run_sql(&format!("INSERT INTO dlock_lock VALUES {}", rows.join(","))).await
}

/// A client that deletes rows that have been idle for a second.
async fn sweeper(server: &MariadbServer) -> Result<DynBackend, Stop> {
    Ok(Mysql::open(config(&server.url())?.with_retention(Duration::from_secs(1))).await?)
}

pub(super) async fn until_left(server: &MariadbServer, names: &[&str]) -> Verdict {
    let removed = async {
        while server.query("SELECT HEX(name) FROM dlock_lock").await?.concat() != names {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    };
    tokio::time::timeout(SOON, removed).await?
}

/// A row that is not text is not a lock. The sweep does not delete it, and it disturbs no other
/// row.
#[test]
fn a_row_that_is_not_text_stops_neither_the_sweep_nor_the_list() {
    with_mariadb(async {
        let server = server().await?;
        fill(&server).await?;
        // Names, one of half a character of UTF-16, a snapshot and a log that are not UTF-8.
        let bad = "INSERT INTO dlock_lock VALUES (X'62FF', 1, 0, 0, '', ''), \
                   (X'62EDA080', 1, 0, 0, '', ''), \
                   ('b1', 1, 0, 0, X'FF', ''), ('b2', 1, 0, 0, '', X'FF')";
        server.run_sql(bad).await?;
        let client = sweeper(&server).await?;
        until_left(&server, &["6231", "6232", "62EDA080", "62FF"]).await?;
        let held = exclusive("b3");
        take(&client, &held).await?;
        let listed = client.list("", 10).await?;
        let listed: Vec<&str> = listed.iter().map(|name| name.as_str()).collect();
        // `inspect` reports the errors of the first two.
        assert_eq!(listed, ["b1", "b2", "b3"]);
        free(&client, &held).await
    });
}

#[test]
fn safe_updates_of_the_server_do_not_stop_the_sweep() {
    with_mariadb(async {
        let options = Options::new().with_config("init_connect = 'SET sql_safe_updates = 1'");
        let server = server_with(&options).await?;
        fill(&server).await?;
        let _client = sweeper(&server).await?;
        until_left(&server, &[]).await
    });
}

/// The sweep deletes rows on the pool's connections, whose settings are the application's.
#[test]
fn safe_updates_of_a_pool_do_not_stop_the_sweep() {
    with_mariadb(async {
        let server = server().await?;
        fill(&server).await?;
        let pool = pool_after(&server, "SET sql_safe_updates = 1").await?;
        let config = MysqlConfig::from_pool(pool)?.with_retention(Duration::from_secs(1));
        let _client = Mysql::open(config).await?;
        until_left(&server, &[]).await
    });
}

/// The waiter for the other lock is granted that lock long before its next heartbeat.
#[test]
fn an_unreadable_record_delays_no_other_name() {
    with_mariadb(async {
        let server = server().await?;
        let (client, other) = (connect(&server).await?, connect(&server).await?);
        let long = |name| exclusive(name).with_lease(Duration::from_secs(600));
        let held = [long("bad"), long("good")];
        let waits = [long("bad"), long("good")];
        for (held, waits) in held.iter().zip(&waits) {
            take(&other, held).await?;
            queue(&client, waits).await?;
        }
        server.run_sql("UPDATE dlock_lock SET snap = X'FF' WHERE name = 'bad'").await?;
        let granted = tokio::spawn({
            let (client, waits) = (client.clone(), waits[1].clone());
            async move { client.granted(&waits).await }
        });
        sleep(Duration::from_millis(200)).await;
        free(&other, &held[1]).await?;
        let late = |_| Stop::failed("nobody has seen the grant");
        timeout(Duration::from_secs(60), granted).await.map_err(late)???;
        Ok(())
    });
}

#[test]
fn rows_of_an_unknown_format_fail_and_stay_unchanged() {
    with_mariadb(async {
        let server = server().await?;
        for returning in [true, false] {
            let config = config(&server.url())?.with_returning(returning);
            let client = Mysql::open(config).await?;
            let run = async |sql: String| server.run_sql(&sql).await;
            let row = async || {
                let row = server.query("SELECT base, snap, log FROM dlock_lock WHERE name = 'a'");
                Ok(format!("{:?}", row.await?))
            };
            crate::formats::fail_and_stay_unchanged(&client, run, row).await?;
            let fail = crate::formats::fail_where_the_client_knows_another;
            fail(&client, &crate::formats::CHANGES, run, row).await?;
        }
        Ok(())
    });
}

#[test]
fn golden_rows_are_written_and_read() {
    with_mariadb(async {
        let server = server().await?;
        let (writer, reader) = (connect(&server).await?, connect(&server).await?);
        let golden = include_str!("../golden/mysql-format-1.txt");
        let rows = "SELECT CONVERT(name USING utf8mb4), CONVERT(snap USING utf8mb4), \
                    CONVERT(log USING utf8mb4) FROM dlock_lock ORDER BY name";
        let rows = async || server.query(rows).await;
        let run = async |sql: String| server.run_sql(&sql).await;
        crate::golden::written_and_read(&writer, &reader, golden, rows, run).await
    });
}
