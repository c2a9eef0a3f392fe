//! Rows that another program keeps locked.

use std::time::Duration;

use dlock_core::{Acquired, Certainty, ErrorKind, LockOptions, Locks};
use dlock_sql::Mysql;
use dlock_testlab::{Stop, mariadb::MariadbServer};
use sqlx::{Connection, Executor, MySqlConnection};
use tokio::time::{sleep, timeout};

use crate::support::{
    SOON, assert_unavailable, config, connect, exclusive, free, lock, server, take, with_mariadb,
};

/// Shorter than an operation retries, and several times as long as it takes otherwise.
const BRIEF: Duration = Duration::from_secs(30);

/// A transaction of another program, which has run this statement.
async fn foreign(server: &MariadbServer, sql: &'static str) -> Result<MySqlConnection, Stop> {
    let mut other = MySqlConnection::connect(&server.url()).await?;
    sqlx::raw_sql("START TRANSACTION").execute(&mut other).await?;
    sqlx::raw_sql(sql).execute(&mut other).await?;
    Ok(other)
}

#[test]
fn a_row_locked_by_another_program_costs_no_other_lock() {
    with_mariadb(async {
        let server = server().await?;
        let lease = Duration::from_secs(6);
        for returning in [true, false] {
            let backend = Mysql::open(config(&server.url())?.with_returning(returning)).await?;
            let locks = Locks::new(backend)?.with_options(LockOptions::new().with_lease(lease))?;
            let mut held = Vec::new();
            for n in 0..60 {
                held.push(locks.mutex(format!("l{n:03}"))?.lock().await?);
            }
            let sql = "SELECT 1 FROM dlock_lock WHERE name = 'l000' FOR UPDATE";
            let mut other = foreign(&server, sql).await?;
            for _ in 0..8 {
                sleep(lease / 4).await;
                let lost = held[1..].iter().filter(|guard| guard.check().is_err()).count();
                assert_eq!(lost, 0);
            }
            sqlx::raw_sql("ROLLBACK").execute(&mut other).await?;
            drop(held);
            locks.shutdown(BRIEF).await?;
        }
        Ok(())
    });
}

/// The row exists, is being inserted, or is being deleted.
#[test]
fn a_row_locked_by_another_program_delays_no_other_waiter() {
    with_mariadb(async {
        let server = server().await?;
        let url = format!("{}?dlock.response_timeout=60s&dlock.connections=1", server.url());
        let client = Mysql::open(config(&url)?).await?;
        for name in ["there", "gone"] {
            let row = exclusive(name);
            take(&client, &row).await?;
            free(&client, &row).await?;
        }
        for (name, sql) in [
            ("there", "SELECT 1 FROM dlock_lock WHERE name = 'there' FOR UPDATE"),
            ("gone", "DELETE FROM dlock_lock WHERE name = 'gone'"),
            (
                "new",
                "INSERT INTO dlock_lock (name, base, seen, cut, snap, log) \
                 VALUES ('new', 1, 0, 0, '', '')",
            ),
        ] {
            let mut other = foreign(&server, sql).await?;
            let asked = exclusive(name);
            let asks = tokio::spawn({
                let (client, asked) = (client.clone(), asked.clone());
                async move { client.acquire(&asked).await }
            });
            let waits = "SELECT 1 FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'";
            // The server fills this table again only when no client has read it for 0.1 s.
            let begun = async {
                while server.query(waits).await?.is_empty() {
                    sleep(Duration::from_millis(300)).await;
                }
                Ok::<(), Stop>(())
            };
            timeout(BRIEF, begun).await.map_err(|_| Stop::failed("nobody waits"))??;
            let works = async {
                for n in 0..20 {
                    // Not next to the row, since the server may lock the gap there.
                    let free_one = exclusive(&format!("a{n}{name}"));
                    take(&client, &free_one).await?;
                    free(&client, &free_one).await?;
                }
                Ok::<(), Stop>(())
            };
            let late = |_| Stop::failed(format!("all wait for {name}"));
            timeout(BRIEF, works).await.map_err(late)??;
            assert!(!asks.is_finished());
            sqlx::raw_sql("ROLLBACK").execute(&mut other).await?;
            assert!(matches!(asks.await??, Acquired::Granted(_)), "{name}");
            free(&client, &asked).await?;
        }
        Ok(())
    });
}

#[test]
fn a_row_locked_for_too_long_is_unavailable_and_unchanged() {
    with_mariadb(async {
        let server = server().await?;
        let first = exclusive("x");
        let patient = connect(&server).await?;
        lock(&patient, &first).await?;
        free(&patient, &first).await?;

        let config = config(&server.url())?.with_response_timeout(Duration::from_secs(5));
        let client = Mysql::open(config).await?;
        let mut other = MySqlConnection::connect(&server.url()).await?;
        for grip in [
            "BEGIN; SELECT * FROM dlock_lock WHERE name = 'x' FOR UPDATE",
            "LOCK TABLES dlock_lock READ",
        ] {
            other.execute(sqlx::raw_sql(grip)).await?;
            let request = exclusive("x");
            let error = client.acquire(&request).await.expect_err("locked");
            assert_unavailable(&error, "another program locks dlock's table");
            assert_eq!(error.certainty(), Certainty::NotApplied);
            other.execute("ROLLBACK").await?;
            other.execute("UNLOCK TABLES").await?;
            lock(&client, &request).await?;
            free(&client, &request).await?;
        }
        Ok(())
    });
}

#[test]
fn a_row_locked_for_a_while_only_takes_longer() {
    with_mariadb(async {
        let server = server().await?;
        let client = connect(&server).await?;
        let (first, second) = (exclusive("x"), exclusive("x"));
        lock(&client, &first).await?;
        let mut other = MySqlConnection::connect(&server.url()).await?;
        let grip = "BEGIN; SELECT * FROM dlock_lock WHERE name = 'x' FOR UPDATE";
        other.execute(sqlx::raw_sql(grip)).await?;
        let release = tokio::spawn(client.release(&first.as_claim()));
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert!(!release.is_finished());
        other.execute("ROLLBACK").await?;
        tokio::time::timeout(SOON, release).await???;
        lock(&client, &second).await?;
        Ok(())
    });
}

#[test]
fn a_dropped_table_is_reported() {
    with_mariadb(async {
        let server = server().await?;
        let client = connect(&server).await?;
        server.run_sql("DROP TABLE dlock_lock").await?;
        let error = client.acquire(&exclusive("x")).await.expect_err("no table");
        assert_eq!(error.kind(), ErrorKind::Config(dlock_core::ConfigIssue::SchemaMissing));
        assert!(error.to_string().contains("MysqlConfig::SCHEMA"), "{error}");
        server.run_sql(dlock_sql::MysqlConfig::SCHEMA).await?;
        lock(&client, &exclusive("x")).await?;
        Ok(())
    });
}
