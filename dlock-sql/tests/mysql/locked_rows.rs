//! Rows that another program keeps locked.

use std::time::Duration;

use dlock_core::{Acquired, LockOptions, Locks};
use dlock_sql::Mysql;
use dlock_testlab::{Stop, mariadb::MariadbServer};
use sqlx::{Connection as _, MySqlConnection};
use tokio::time::{sleep, timeout};

use crate::support::{ask, config, free, server, take, with_mariadb};

/// Less than an operation tries for where a test bounds it so, and a multiple of what else it takes.
const SOON: Duration = Duration::from_secs(30);

/// A transaction of somebody else, which has done this.
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
            locks.shutdown(SOON).await?;
        }
        Ok(())
    });
}

/// Of a row that is there, of one that is being made, and of one that is being removed.
#[test]
fn a_row_locked_by_another_program_delays_no_other_waiter() {
    with_mariadb(async {
        let server = server().await?;
        let url = format!("{}?dlock.response_timeout=60s&dlock.connections=1", server.url());
        let client = Mysql::open(config(&url)?).await?;
        for name in ["there", "gone"] {
            let row = ask(name);
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
            let asked = ask(name);
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
            timeout(SOON, begun).await.map_err(|_| Stop::failed("nobody waits"))??;
            let works = async {
                for n in 0..20 {
                    // Not beside the row, where the server may keep the gap.
                    let free_one = ask(&format!("a{n}{name}"));
                    take(&client, &free_one).await?;
                    free(&client, &free_one).await?;
                }
                Ok::<(), Stop>(())
            };
            let late = |_| Stop::failed(format!("all wait for {name}"));
            timeout(SOON, works).await.map_err(late)??;
            assert!(!asks.is_finished());
            sqlx::raw_sql("ROLLBACK").execute(&mut other).await?;
            assert!(matches!(asks.await??, Acquired::Granted(_)), "{name}");
            free(&client, &asked).await?;
        }
        Ok(())
    });
}
