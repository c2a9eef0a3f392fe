//! The rows in the table, and their deletion.

use std::time::Duration;

use dlock_core::{ConfigIssue, ErrorKind};
use dlock_sql::Mysql;
use dlock_testlab::{Stop, mariadb::MariadbServer};

use crate::support::{LONG, ask, attempt, config, connect, free, lock, server, take, with_mariadb};

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
            let request = ask(&format!("ä {n}"));
            last = Some(take(&client, &request).await?.token);
            free(&client, &request).await?;
        }
        let held = ask("held").with_lease(Duration::from_secs(3600));
        take(&client, &held).await?;
        let removed = async {
            while count(&server).await? != "1" {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            Ok::<_, Stop>(())
        };
        tokio::time::timeout(LONG, removed).await??;
        assert_eq!(server.query("SELECT name FROM dlock_lock").await?.concat(), ["held"]);
        assert!(Some(take(&client, &ask("ä 299")).await?.token) > last);
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
                    let request = ask("x");
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
            let request = ask("x");
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
        // A trigger may do worse.
        let sql = "ALTER TABLE dlock_lock MODIFY log VARBINARY(10) NOT NULL";
        server.run_sql(&format!("DELETE FROM dlock_lock; {sql}")).await?;
        let error = client.acquire(&attempt("x")).await.expect_err("does not fit");
        assert_eq!(error.kind(), ErrorKind::Config(ConfigIssue::ForeignStore), "{error}");
        Ok(())
    });
}
