//! Error codes of a server, or of a proxy in front of it, that are unknown to dlock.

use std::time::Duration;

use dlock_core::{AcquireRequest, DynBackend, ErrorKind, LockOptions, Locks, Renewal};
use dlock_testlab::{Stop, Verdict, postgres::PostgresServer};

use crate::support::{connect, exclusive, free, name, run, says, start, take, until};

/// The codes of RDS Proxy, Odyssey, pgcat and others for an unreachable server, and two codes of
/// servers.
const CODES: [&str; 4] = ["XX000", "58000", "58030", "55000"];

/// Writes to the row of a lock fail with the code that is stored for its name, and are counted.
const FAIL: &str = "
    CREATE TABLE sick (name text PRIMARY KEY, code text);
    CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = public AS $$
    DECLARE it text := (SELECT code FROM sick WHERE name = NEW.name);
    BEGIN
      IF it IS NULL THEN RETURN NEW; END IF;
      PERFORM nextval('refused_' || it);
      RAISE EXCEPTION 'sick' USING ERRCODE = it;
    END $$;
    CREATE TRIGGER fail BEFORE UPDATE ON dlock_lock FOR EACH ROW EXECUTE FUNCTION fail()";

/// A server on which single locks can be made to fail.
async fn sickly() -> Result<(PostgresServer, DynBackend), Stop> {
    let (server, client) = start().await?;
    for code in CODES {
        server.run_sql(&format!("CREATE SEQUENCE \"refused_{code}\"").to_lowercase()).await?;
    }
    server.run_sql(&FAIL.replace("'refused_' || it", "'refused_' || lower(it)")).await?;
    Ok((server, client))
}

/// Waits until this number of writes has failed with the code.
async fn refused(server: &PostgresServer, code: &str, times: u64) -> Verdict {
    let sql = format!("SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM refused_{code}");
    let enough = async || {
        let many: u64 = server.query(&sql).await?.concat().concat().parse()?;
        Ok(many >= times)
    };
    until("writes are refused", enough).await
}

async fn locks(server: &PostgresServer, lease: Duration) -> Result<Locks, Stop> {
    let options = LockOptions::new().with_lease(lease);
    Ok(Locks::new(connect(&server.url()).await?)?.with_options(options)?)
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
        server.run_sql("INSERT INTO sick VALUES ('a', 'XX000')").await?;
        waiting.abort();
        refused(&server, "XX000", 3).await?;
        server.run_sql("DELETE FROM sick").await?;
        until_waiting(&client, "a", 0).await
    });
}

/// Not all of the rows are damaged.
#[test]
fn a_failing_server_gets_few_requests_for_many_locks() {
    run(async {
        let (server, client) = sickly().await?;
        let held: Vec<_> = (0..200).map(|n| exclusive(&format!("l{n}"))).collect();
        for held in &held {
            take(&client, held).await?;
        }
        server.run_sql("INSERT INTO sick SELECT name, 'XX000' FROM dlock_lock").await?;
        let renewal = |request: &AcquireRequest| {
            let AcquireRequest { mode, lease, .. } = *request;
            Renewal::new(request.as_claim(), mode, lease)
        };
        let error = client.renew(&held.iter().map(renewal).collect::<Vec<_>>()).await.err();
        let error = error.ok_or_else(|| Stop::failed("it was renewed"))?;
        says(&error, ErrorKind::Unavailable, "XX000: sick");
        let statements = server.query("SELECT last_value FROM refused_xx000").await?;
        assert!(statements.concat().concat().parse::<u32>()? < 30, "{statements:?}");
        Ok(())
    });
}
