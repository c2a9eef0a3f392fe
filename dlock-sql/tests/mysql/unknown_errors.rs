//! Error codes of a server, or of a proxy in front of it, that are unknown to dlock.

use dlock_core::DynBackend;
use dlock_testlab::{Stop, Verdict, mariadb::MariadbServer};

use crate::support::{connect, server, until};

/// ProxySQL's error for an unreachable server, and an error of a trigger.
pub(crate) const CODES: [&str; 2] = ["9001", ERROR_OF_A_ROW];

pub(crate) const ERROR_OF_A_ROW: &str = "1644";

/// Writes to the row of a lock fail with the error number that is stored for its name. A table that
/// no failure rolls back counts them.
const FAIL: &str = "
    CREATE TABLE sick (name VARBINARY(512) PRIMARY KEY, code INT);
    CREATE TABLE refused (code INT) ENGINE = Aria TRANSACTIONAL = 0;
    CREATE TRIGGER fail BEFORE UPDATE ON dlock_lock FOR EACH ROW
    IF EXISTS (SELECT 1 FROM sick WHERE sick.name = NEW.name AND code = 9001) THEN
      INSERT INTO refused VALUES (9001);
      SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = 9001, MESSAGE_TEXT = 'Max connect timeout';
    ELSEIF EXISTS (SELECT 1 FROM sick WHERE sick.name = NEW.name) THEN
      INSERT INTO refused VALUES (1644);
      SIGNAL SQLSTATE '45000';
    END IF";

/// A server on which single locks can be made to fail.
pub(crate) async fn sickly() -> Result<(MariadbServer, DynBackend), Stop> {
    let server = server().await?;
    server.run_sql(FAIL).await?;
    let client = connect(&server).await?;
    Ok((server, client))
}

/// Waits until this number of writes has failed with the code.
pub(crate) async fn refused(server: &MariadbServer, code: &str, times: u64) -> Verdict {
    let sql = format!("SELECT COUNT(*) FROM refused WHERE code = {code}");
    let enough = async || {
        let many: u64 = server.query(&sql).await?.concat().concat().parse()?;
        Ok(many >= times)
    };
    until("writes are refused", enough).await
}
