//! The baseline: the cost of a minimal lock with the bare driver.
//!
//! A row with an owner and an end. One upsert acquires the lock if the end has passed, and one
//! update with a check of the owner releases it. It has no queue, no token, no renewal and no
//! retry.

use crate::{
    Failure,
    own::bare::{BareConnection, Statement},
};

const SCHEMA: Statement = Statement {
    postgres: "CREATE TABLE IF NOT EXISTS baseline_lock (name text COLLATE \"C\" PRIMARY KEY, \
               owner text NOT NULL, until timestamptz NOT NULL) WITH (fillfactor = 50)",
    mysql: "CREATE TABLE IF NOT EXISTS baseline_lock (name VARBINARY(255) PRIMARY KEY, \
            owner VARBINARY(64) NOT NULL, until DATETIME(6) NOT NULL) ENGINE = InnoDB",
};

const TAKE: Statement = Statement {
    postgres: "INSERT INTO baseline_lock AS f (name, owner, until) \
               VALUES ($1, $2, now() + interval '30 s') \
               ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, until = excluded.until \
               WHERE f.until < now()",
    mysql: "INSERT INTO baseline_lock (name, owner, until) \
            VALUES (?, ?, UTC_TIMESTAMP(6) + INTERVAL 30 SECOND) ON DUPLICATE KEY UPDATE \
            owner = IF(until < UTC_TIMESTAMP(6), VALUES(owner), owner), \
            until = IF(until < UTC_TIMESTAMP(6), VALUES(until), until)",
};

const RELEASE: Statement = Statement {
    postgres: "UPDATE baseline_lock SET until = '-infinity' WHERE name = $1 AND owner = $2",
    mysql: "UPDATE baseline_lock SET until = '2000-01-01' WHERE name = ? AND owner = ?",
};

const UPSERT: Statement = Statement {
    postgres: "INSERT INTO baseline_lock (name, owner, until) VALUES ($1, $2, now()) \
               ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, until = excluded.until",
    mysql: "INSERT INTO baseline_lock (name, owner, until) VALUES (?, ?, UTC_TIMESTAMP(6)) \
            ON DUPLICATE KEY UPDATE owner = VALUES(owner), until = VALUES(until)",
};

/// Creates the baseline's table, if it does not exist.
pub(crate) async fn make_table(connection: &mut BareConnection) -> Result<(), Failure> {
    connection.run(SCHEMA, &[]).await?;
    Ok(())
}

/// Returns an owner that is as long as the ids of a real lock.
pub(crate) fn owner(name: &str) -> String {
    format!("{:032x}", name.len())
}

/// Acquires the baseline's lock.
pub(crate) async fn take(connection: &mut BareConnection, args: &[&str; 2]) -> Result<(), Failure> {
    match connection.run(TAKE, args).await? {
        0 => Err("the baseline's lock is taken".into()),
        _ => Ok(()),
    }
}

/// Releases the lock.
pub(crate) async fn release(
    connection: &mut BareConnection,
    args: &[&str; 2],
) -> Result<(), Failure> {
    match connection.run(RELEASE, args).await? {
        1 => Ok(()),
        _ => Err("the baseline's lock was lost".into()),
    }
}

/// Writes a row, whatever its previous content.
pub(crate) async fn upsert(
    connection: &mut BareConnection,
    args: &[&str; 2],
) -> Result<(), Failure> {
    connection.run(UPSERT, args).await?;
    Ok(())
}
