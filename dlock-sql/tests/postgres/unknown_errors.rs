//! Error codes of a server, or of a proxy in front of it, that are unknown to dlock.

use dlock_core::{AcquireRequest, DynBackend, ErrorKind, Renewal};
use dlock_testlab::{Stop, Verdict, postgres::PostgresServer};

use crate::support::{exclusive, run, says, start, take, until};

/// The codes of RDS Proxy, Odyssey, pgcat and others for an unreachable server, and two codes of
/// servers.
pub(crate) const CODES: [&str; 4] = ["XX000", "58000", "58030", "55000"];

/// An exception of a trigger, which concerns one row.
pub(crate) const ERROR_OF_A_ROW: &str = "P0001";

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
pub(crate) async fn sickly() -> Result<(PostgresServer, DynBackend), Stop> {
    let (server, client) = start().await?;
    for code in CODES.into_iter().chain([ERROR_OF_A_ROW]) {
        server.run_sql(&format!("CREATE SEQUENCE \"refused_{code}\"").to_lowercase()).await?;
    }
    server.run_sql(&FAIL.replace("'refused_' || it", "'refused_' || lower(it)")).await?;
    Ok((server, client))
}

/// Waits until this number of writes has failed with the code.
pub(crate) async fn refused(server: &PostgresServer, code: &str, times: u64) -> Verdict {
    let sql = format!("SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM refused_{code}");
    let enough = async || {
        let many: u64 = server.query(&sql).await?.concat().concat().parse()?;
        Ok(many >= times)
    };
    until("writes are refused", enough).await
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
