//! Error codes of a server, or of a proxy in front of it, that are unknown to dlock.

use std::time::Duration;

use dlock_core::{AcquireRequest, DynBackend, LockOptions, Locks, Renewal, Renewed};
use dlock_testlab::{Stop, Verdict, mariadb::MariadbServer};

use crate::support::{connect, exclusive, free, name, server, take, until, with_mariadb};

/// Writes to the row of a lock fail with the error number that is stored for its name. A table that
/// no failure rolls back counts them.
const FAIL: &str = "
    CREATE TABLE sick (name VARBINARY(512) PRIMARY KEY, number INT);
    CREATE TABLE refused (number INT) ENGINE = Aria TRANSACTIONAL = 0;
    CREATE TRIGGER fail BEFORE UPDATE ON dlock_lock FOR EACH ROW
    IF EXISTS (SELECT 1 FROM sick WHERE sick.name = NEW.name AND number = 9001) THEN
      INSERT INTO refused VALUES (9001);
      SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = 9001, MESSAGE_TEXT = 'Max connect timeout';
    ELSEIF EXISTS (SELECT 1 FROM sick WHERE sick.name = NEW.name) THEN
      INSERT INTO refused VALUES (1644);
      SIGNAL SQLSTATE '45000';
    END IF";

async fn sickly() -> Result<(MariadbServer, DynBackend), Stop> {
    let server = server().await?;
    server.run_sql(FAIL).await?;
    let client = connect(&server).await?;
    Ok((server, client))
}

async fn refused(server: &MariadbServer, number: u16, times: u64) -> Verdict {
    let sql = format!("SELECT COUNT(*) FROM refused WHERE number = {number}");
    let enough = async || {
        let many: u64 = server.query(&sql).await?.concat().concat().parse()?;
        Ok(many >= times)
    };
    until("writes are refused", enough).await
}

async fn locks(server: &MariadbServer, lease: Duration) -> Result<Locks, Stop> {
    let options = LockOptions::new().with_lease(lease);
    Ok(Locks::new(connect(server).await?)?.with_options(options)?)
}

async fn until_waiting(client: &DynBackend, lock: &str, many: usize) -> Verdict {
    let waiting = async || Ok(client.inspect(&name(lock)).await?.waiters.len() == many);
    until(&format!("{many} wait for {lock}"), waiting).await
}

/// 9001 is ProxySQL's.
#[test]
fn a_wait_outlasts_unknown_errors() {
    with_mariadb(async {
        let (server, client) = sickly().await?;
        let mut waits = Vec::new();
        for number in [9001, 1644] {
            let lock = number.to_string();
            let held = exclusive(&lock);
            take(&client, &held).await?;
            let mutex = locks(&server, Duration::from_secs(12)).await?.mutex(&*lock)?;
            let waiting = tokio::spawn(async move { mutex.lock().await });
            until_waiting(&client, &lock, 1).await?;
            server.run_sql(&format!("INSERT INTO sick VALUES ('{lock}', {number})")).await?;
            waits.push((number, held, waiting));
        }
        for (number, held, waiting) in waits {
            refused(&server, number, 2).await?;
            server.run_sql(&format!("DELETE FROM sick WHERE number = {number}")).await?;
            free(&client, &held).await?;
            let granted = waiting.await?;
            granted.map_err(|error| Stop::failed(format!("{number}: {error}")))?.release().await?;
        }
        Ok(())
    });
}

/// A release that fails like this is retried until it succeeds.
#[test]
fn a_wait_cancelled_during_unknown_errors_leaves_no_claim() {
    with_mariadb(async {
        let (server, client) = sickly().await?;
        take(&client, &exclusive("a")).await?;
        let lock = locks(&server, Duration::from_secs(600)).await?.mutex("a")?;
        let waiting = tokio::spawn(async move { lock.lock().await.map(drop) });
        until_waiting(&client, "a", 1).await?;
        server.run_sql("INSERT INTO sick VALUES ('a', 9001)").await?;
        waiting.abort();
        refused(&server, 9001, 3).await?;
        server.run_sql("DELETE FROM sick").await?;
        until_waiting(&client, "a", 0).await
    });
}

/// The server itself refuses to write one of the rows.
#[test]
fn an_unwritable_row_costs_no_other_lock() {
    with_mariadb(async {
        let (server, client) = sickly().await?;
        let held: Vec<_> = (0..30).map(|n| exclusive(&format!("l{n:03}"))).collect();
        for held in &held {
            take(&client, held).await?;
        }
        server.run_sql("INSERT INTO sick VALUES ('l029', 1644)").await?;
        let renewal = |request: &AcquireRequest| {
            let AcquireRequest { mode, lease, .. } = *request;
            Renewal::new(request.as_claim(), mode, lease)
        };
        let renewals: Vec<_> = held.iter().map(renewal).collect();
        let renewed = client.renew(&renewals).await?;
        assert_eq!(renewed[..29], [Renewed::Kept; 29]);
        assert_eq!(renewed[29], Renewed::Unknown);
        assert!(client.renew(&renewals[29..]).await.is_err());
        Ok(())
    });
}
