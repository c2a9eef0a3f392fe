//! Rows that another program locks, rows that can't be read or written, and error codes that are
//! unknown to dlock, of a server or of a proxy in front of it.

use std::time::Duration;

use dlock_core::{AcquireRequest, Acquired, DynBackend, LockOptions, Locks, Renewal, Renewed};
use dlock_testlab::{Stop, Verdict};
use sqlx::Connection as _;
use tokio::time::{sleep, timeout};

use crate::{
    support::{
        Connection, ROW_WAITS, SPOILED_RECORDS, Server, Store, VARIANTS, client_of, config,
        exclusive, free, name, run, set_up, take, until,
    },
    unknown_errors::{CODES, ERROR_OF_A_ROW, refused, sickly},
};

/// Shorter than an operation retries, and several times as long as it takes otherwise.
const BRIEF: Duration = Duration::from_secs(30);

/// A transaction of another program, which has run this statement.
async fn foreign(server: &Server, sql: &'static str) -> Result<Connection, Stop> {
    let mut other = Connection::connect(&server.url()).await?;
    sqlx::raw_sql("START TRANSACTION").execute(&mut other).await?;
    sqlx::raw_sql(sql).execute(&mut other).await?;
    Ok(other)
}

#[test]
fn a_row_locked_by_another_program_costs_no_other_lock() {
    run(async {
        let server = set_up().await?;
        let lease = Duration::from_secs(6);
        for vary in VARIANTS {
            let backend = Store::open(vary(config(&server.url())?)).await?;
            let locks = Locks::new(backend)?.with_options(LockOptions::new().with_lease(lease))?;
            let mut held = Vec::new();
            for n in 0..60 {
                held.push(locks.mutex(format!("l{n:03}"))?.lock().await?);
            }
            let lost = || held[1..].iter().filter(|guard| guard.check().is_err()).count();
            let sql = "SELECT 1 FROM dlock_lock WHERE name = 'l000' FOR UPDATE";
            let mut other = foreign(&server, sql).await?;
            for _ in 0..8 {
                sleep(lease / 4).await;
                assert_eq!(lost(), 0);
            }
            sqlx::raw_sql("ROLLBACK").execute(&mut other).await?;
            assert_eq!(lost(), 0);
            drop(held);
            locks.shutdown(BRIEF).await?;
        }
        Ok(())
    });
}

/// The row exists, is being inserted, or is being deleted.
#[test]
fn a_row_locked_by_another_program_delays_no_other_waiter() {
    run(async {
        let server = set_up().await?;
        let url = format!("{}?dlock.response_timeout=60s&dlock.connections=1", server.url());
        let client = Store::open(config(&url)?).await?;
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
            until("it waits for the row", async || {
                // MariaDB updates its table only when no client has read it for 0.1 s.
                sleep(Duration::from_millis(300)).await;
                Ok(!server.query(ROW_WAITS).await?.is_empty())
            })
            .await?;
            let works = async {
                for n in 0..20 {
                    // Not next to the row, since MariaDB may lock the gap there.
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

fn renewal(request: &AcquireRequest) -> Renewal {
    Renewal::new(request.as_claim(), request.mode, request.lease)
}

/// Renews many locks at once, after this statement has changed the row of the last one, `l029`.
async fn renews_the_others(server: &Server, client: &DynBackend, change: &str) -> Verdict {
    let held: Vec<_> = (0..30).map(|n| exclusive(&format!("l{n:03}"))).collect();
    for held in &held {
        take(client, held).await?;
    }
    server.run_sql(change).await?;
    let renewals: Vec<_> = held.iter().map(renewal).collect();
    let renewed = client.renew(&renewals).await?;
    assert_eq!(renewed[..29], [Renewed::Kept; 29], "{change}");
    assert_eq!(renewed[29], Renewed::Unknown, "{change}");
    // A renewal of that lock alone returns the error.
    assert!(client.renew(&renewals[29..]).await.is_err(), "{change}");
    Ok(())
}

#[test]
fn an_unreadable_record_costs_no_other_lock() {
    run(async {
        let server = set_up().await?;
        for vary in VARIANTS {
            for spoiled in SPOILED_RECORDS {
                let client = Store::open(vary(config(&server.url())?)).await?;
                let spoil =
                    format!("UPDATE dlock_lock SET log = '', snap = {spoiled} WHERE name = 'l029'");
                renews_the_others(&server, &client, &spoil).await?;
                server.run_sql("DELETE FROM dlock_lock").await?;
            }
        }
        Ok(())
    });
}

async fn locks(server: &Server, lease: Duration) -> Result<Locks, Stop> {
    let options = LockOptions::new().with_lease(lease);
    Ok(Locks::new(client_of(server).await?)?.with_options(options)?)
}

async fn until_waiting(client: &DynBackend, lock: &str, many: usize) -> Verdict {
    let waiting = async || Ok(client.inspect(&name(lock)).await?.waiters.len() == many);
    until(&format!("{many} wait for {lock}"), waiting).await
}

#[test]
fn a_wait_outlasts_unknown_errors() {
    run(async {
        let (server, client) = sickly().await?;
        let mut waits = Vec::new();
        for code in CODES {
            let held = exclusive(code);
            take(&client, &held).await?;
            let lock = locks(&server, Duration::from_secs(12)).await?.mutex(code)?;
            let waiting = tokio::spawn(async move { lock.lock().await });
            until_waiting(&client, code, 1).await?;
            server.run_sql(&format!("INSERT INTO sick VALUES ('{code}', '{code}')")).await?;
            waits.push((code, held, waiting));
        }
        for (code, held, waiting) in waits {
            refused(&server, code, 2).await?;
            server.run_sql(&format!("DELETE FROM sick WHERE name = '{code}'")).await?;
            free(&client, &held).await?;
            let granted = waiting.await?;
            granted.map_err(|error| Stop::failed(format!("{code}: {error}")))?.release().await?;
        }
        Ok(())
    });
}

/// A release that fails like this is retried until it succeeds.
#[test]
fn a_wait_cancelled_during_unknown_errors_leaves_no_claim() {
    run(async {
        let (server, client) = sickly().await?;
        take(&client, &exclusive("a")).await?;
        let lock = locks(&server, Duration::from_secs(600)).await?.mutex("a")?;
        let waiting = tokio::spawn(async move { lock.lock().await.map(drop) });
        until_waiting(&client, "a", 1).await?;
        server.run_sql(&format!("INSERT INTO sick VALUES ('a', '{}')", CODES[0])).await?;
        waiting.abort();
        refused(&server, CODES[0], 3).await?;
        server.run_sql("DELETE FROM sick").await?;
        until_waiting(&client, "a", 0).await
    });
}

/// The server itself refuses to write one of the rows.
#[test]
fn an_unwritable_row_costs_no_other_lock() {
    run(async {
        let (server, client) = sickly().await?;
        let refuse = format!("INSERT INTO sick VALUES ('l029', '{ERROR_OF_A_ROW}')");
        renews_the_others(&server, &client, &refuse).await
    });
}
