//! Records that can't be read.

use std::time::Duration;

use dlock_core::{AcquireRequest, LockOptions, Locks};
use dlock_sql::Mysql;
use dlock_testlab::Stop;
use tokio::time::{sleep, timeout};

use crate::help::{ask, config, connect, free, queue, server, take, with_mariadb};

#[test]
fn a_record_that_can_not_be_read_costs_no_other_lock() {
    with_mariadb(async {
        let server = server().await?;
        let lease = Duration::from_secs(6);
        for (returning, spoiled) in [(true, "'v2 1 1;'"), (true, "X'FF'"), (false, "X'FF'")] {
            let backend = Mysql::open(config(&server.url())?.with_returning(returning)).await?;
            let locks = Locks::over(backend)?.with_options(LockOptions::new().with_lease(lease))?;
            let mut held = Vec::new();
            for n in 0..30 {
                held.push(locks.mutex(format!("l{n:03}"))?.lock().await?);
            }
            let spoil = "UPDATE dlock_lock SET log = '', snap =";
            server.run_sql(&format!("{spoil} {spoiled} WHERE name = 'l000'")).await?;
            for _ in 0..8 {
                sleep(lease / 4).await;
                let lost = held[1..].iter().filter(|guard| guard.check().is_err()).count();
                assert_eq!(lost, 0, "{spoiled}");
            }
            assert!(held[0].check().is_err(), "the test is of no use: the record is read");
            drop(held);
            server.run_sql("DELETE FROM dlock_lock").await?;
        }
        Ok(())
    });
}

/// Whoever waits for the other lock sees its grant long before he would ask for it.
#[test]
fn a_record_that_can_not_be_read_keeps_no_other_name_waiting() {
    with_mariadb(async {
        let server = server().await?;
        let (client, other) = (connect(&server).await?, connect(&server).await?);
        let long = |name| AcquireRequest { lease: Duration::from_secs(600), ..ask(name) };
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
