//! Rows that another program keeps locked, and connections without answers.

use std::{process::Command, time::Duration};

use dlock_core::{Guard, LockOptions, Locks};
use dlock_testlab::{Stop, postgres::PostgresServer};
use sqlx::{Connection as _, PgConnection};
use tokio::time::{sleep, timeout};

use crate::support::{connect, create, exclusive, free, run, server, start, take, until};

/// Shorter than an operation retries, and several times as long as it takes otherwise.
const SOON: Duration = Duration::from_secs(30);

/// A transaction of another program, which has run this statement.
async fn foreign(server: &PostgresServer, sql: &'static str) -> Result<PgConnection, Stop> {
    let mut other = PgConnection::connect(&server.admin_url()).await?;
    sqlx::raw_sql("BEGIN").execute(&mut other).await?;
    sqlx::raw_sql(sql).execute(&mut other).await?;
    Ok(other)
}

async fn locks(url: &str, lease: Duration) -> Result<Locks, Stop> {
    Ok(Locks::new(connect(url).await?)?.with_options(LockOptions::new().with_lease(lease))?)
}

/// Returns requests for this number of locks, the first of which is `l000`.
async fn hold(locks: &Locks, many: usize) -> Result<Vec<Guard>, Stop> {
    let mut held = Vec::new();
    for n in 0..many {
        held.push(locks.mutex(format!("l{n:03}"))?.lock().await?);
    }
    Ok(held)
}

fn lost(held: &[Guard]) -> usize {
    held.iter().filter(|guard| guard.check().is_err()).count()
}

#[test]
fn a_row_locked_by_another_program_costs_no_other_lock() {
    run(async {
        let server = server().await?;
        let lease = Duration::from_secs(6);
        let locks = locks(&create(&server), lease).await?;
        let held = hold(&locks, 60).await?;
        let mut other =
            foreign(&server, "SELECT 1 FROM dlock_lock WHERE name = 'l000' FOR UPDATE").await?;
        for _ in 0..8 {
            sleep(lease / 4).await;
            assert_eq!(lost(&held[1..]), 0);
        }
        sqlx::raw_sql("ROLLBACK").execute(&mut other).await?;
        assert_eq!(lost(&held[1..]), 0);
        Ok(())
    });
}

/// The row exists, is being inserted, or is being deleted.
#[test]
fn a_row_locked_by_another_program_delays_no_other_waiter() {
    run(async {
        let (server, _) = start().await?;
        let url = format!("{}?dlock.response_timeout=60s&dlock.connections=1", server.url());
        let client = connect(&url).await?;
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
            let waits = "SELECT 1 FROM pg_stat_activity WHERE usename = 'dlock' \
                         AND wait_event_type = 'Lock'";
            until("it waits for the row", async || Ok(!server.query(waits).await?.is_empty()))
                .await?;
            let works = async {
                for n in 0..20 {
                    let free_one = exclusive(&format!("{name}{n}"));
                    take(&client, &free_one).await?;
                    free(&client, &free_one).await?;
                }
                Ok::<(), Stop>(())
            };
            let late = |_| Stop::failed(format!("all wait for {name}"));
            timeout(SOON, works).await.map_err(late)??;
            assert!(!asks.is_finished());
            sqlx::raw_sql("ROLLBACK").execute(&mut other).await?;
            assert!(matches!(asks.await??, dlock_core::Acquired::Granted(_)), "{name}");
            free(&client, &asked).await?;
        }
        Ok(())
    });
}

/// The server's processes behind all connections are paused, and new ones work.
#[test]
fn silent_connections_are_replaced_before_a_lease_expires() {
    run(async {
        let server = server().await?;
        let lease = Duration::from_secs(6);
        let url = format!("{}&dlock.response_timeout=30s&dlock.connections=8", create(&server));
        let locks = locks(&url, lease).await?;
        let held = hold(&locks, 3).await?;
        let pids = "SELECT pid FROM pg_stat_activity WHERE usename = 'dlock'";
        let mut silent = Vec::new();
        until("there are several connections", async || {
            let tasks = (0..64).map(|number| {
                let locks = locks.clone();
                tokio::spawn(async move {
                    locks.mutex(format!("short {number}"))?.lock().await?.release().await
                })
            });
            for task in tasks.collect::<Vec<_>>() {
                task.await??;
            }
            silent = server.query(pids).await?.concat();
            Ok(silent.len() >= 4)
        })
        .await?;
        let signal = |signal: &str| Command::new("kill").arg(signal).args(&silent).status();
        assert!(signal("-STOP")?.success());
        for _ in 0..8 {
            sleep(lease / 4).await;
            assert_eq!(lost(&held), 0);
        }
        signal("-CONT")?;
        Ok(())
    });
}
