//! Rows that are not locks, and the sweep among them.

use std::time::Duration;

use dlock_core::DynBackend;
use dlock_sql::{Mysql, MysqlConfig};
use dlock_testlab::{Stop, Verdict, mariadb::MariadbServer, mariadb::Options};

use super::sessions::pool_after;
use crate::support::{LONG, ask, config, free, server, server_with, take, with_mariadb};

/// More rows than a page has, of locks that nobody has used for long, to both sides of `middle`.
async fn fill(server: &MariadbServer) -> Verdict {
    let rows: Vec<String> = (0..600)
        .map(|n| {
            let side = if n < 300 { 'a' } else { 'c' };
            format!("('{side}{n:04}', 1000000, 0, 0, '', 'R {n:032x} 0 1000000;')")
        })
        .collect();
    server.run_sql(&format!("INSERT INTO dlock_lock VALUES {}", rows.join(","))).await
}

/// A client that removes what has been idle for a second.
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
    tokio::time::timeout(LONG, removed).await?
}

/// None of the bad ones is a lock: they are nobody's to delete, and in nobody's way.
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
        let held = ask("b3");
        take(&client, &held).await?;
        let listed = client.list("", 10).await?;
        let listed: Vec<&str> = listed.iter().map(|name| name.as_str()).collect();
        // A look at the first two says what is wrong with them.
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
