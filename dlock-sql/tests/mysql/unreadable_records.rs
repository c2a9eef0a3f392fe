//! Records that can't be read.

use std::time::Duration;

use dlock_core::{AcquireRequest, Renewal, Renewed};
use dlock_sql::Mysql;
use dlock_testlab::Stop;
use tokio::time::{sleep, timeout};

use crate::support::{ask, config, connect, free, queue, server, take, with_mariadb};

#[test]
fn an_unreadable_record_costs_no_other_lock() {
    with_mariadb(async {
        let server = server().await?;
        for (returning, spoiled) in [(true, "'v9 1 1;'"), (true, "X'FF'"), (false, "X'FF'")] {
            let client = Mysql::open(config(&server.url())?.with_returning(returning)).await?;
            let held: Vec<_> = (0..30).map(|n| ask(&format!("l{n:03}"))).collect();
            for held in &held {
                take(&client, held).await?;
            }
            let spoil = "UPDATE dlock_lock SET log = '', snap =";
            server.run_sql(&format!("{spoil} {spoiled} WHERE name = 'l029'")).await?;
            let renewal = |request: &AcquireRequest| {
                let AcquireRequest { mode, lease, .. } = *request;
                Renewal::new(request.as_claim(), mode, lease)
            };
            let renewals: Vec<_> = held.iter().map(renewal).collect();
            let renewed = client.renew(&renewals).await?;
            assert_eq!(renewed[..29], [Renewed::Kept; 29], "{spoiled}");
            assert_eq!(renewed[29], Renewed::Unknown, "{spoiled}");
            assert!(client.renew(&renewals[29..]).await.is_err(), "{spoiled}");
            server.run_sql("DELETE FROM dlock_lock").await?;
        }
        Ok(())
    });
}

/// The waiter for the other lock is granted it long before its own heartbeat.
#[test]
fn an_unreadable_record_delays_no_other_name() {
    with_mariadb(async {
        let server = server().await?;
        let (client, other) = (connect(&server).await?, connect(&server).await?);
        let long = |name| ask(name).with_lease(Duration::from_secs(600));
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
