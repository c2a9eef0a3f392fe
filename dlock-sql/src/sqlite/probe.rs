//! Tries all statements on a file when it is opened, before any lock depends on it.
//!
//! The writes are in one transaction, which is rolled back. So no other process sees them, and a
//! process that dies in between leaves nothing behind.

use sqlx::{
    Row as _, Sqlite, SqliteConnection,
    query::Query,
    sqlite::{SqliteArguments, SqliteRow},
};

use super::{error::classify, json::Array, queries};
use crate::engine::Fault;

/// The empty name, which no lock can have.
const NAME: &str = "";
const OP: &str = "probe";

/// Tries each statement that writes, and rolls all of them back. SQLite silently opens a file
/// read-only if it has no right to write: then `BEGIN IMMEDIATE` succeeds, and only a statement
/// fails.
pub(super) async fn probe_writes(conn: &mut SqliteConnection) -> Result<(), Fault> {
    run(conn, sqlx::query(queries::BEGIN)).await?;
    // The first statement inserts the row, and the next ones update it.
    run(conn, apply_one()).await?;
    let many =
        Array::new().array(|one| one.text(NAME).number(0).number(0).text("").text(OP).number(0));
    run(conn, sqlx::query(queries::APPLY_MANY).bind(many.finish())).await?;
    let rows = run(conn, apply_one()).await?;
    let (base, log): (i64, String) = match rows.first() {
        Some(row) => (row.try_get(0).map_err(classify)?, row.try_get(2).map_err(classify)?),
        None => (0, String::new()),
    };
    let length = i64::try_from(log.len()).unwrap_or(0);
    let gone = Array::new().array(|one| one.text(NAME).number(base).number(length));
    run(conn, sqlx::query(queries::DELETE).bind(gone.finish())).await?;
    run(conn, sqlx::query(queries::ROLLBACK)).await?;
    Ok(())
}

/// Tries each statement that reads.
pub(super) async fn probe_reads(conn: &mut SqliteConnection) -> Result<(), Fault> {
    run(conn, sqlx::query(queries::DATA_VERSION)).await?;
    let wanted = Array::new().array(|one| one.text(NAME).number(0));
    run(conn, sqlx::query(queries::READ).bind(wanted.finish())).await?;
    run(conn, sqlx::query(queries::PAGE).bind(NAME).bind(0_i64).bind(0_i64).bind(1_i64)).await?;
    run(conn, sqlx::query(queries::RANGE).bind(NAME).bind(NAME).bind(1_i64)).await?;
    Ok(())
}

fn apply_one() -> Query<'static, Sqlite, SqliteArguments> {
    sqlx::query(queries::APPLY_ONE)
        .bind(NAME)
        .bind(0_i64)
        .bind(0_i64)
        .bind("")
        .bind(OP)
        .bind(0_i64)
        .bind(0_i64)
}

async fn run(
    conn: &mut SqliteConnection,
    query: Query<'_, Sqlite, SqliteArguments>,
) -> Result<Vec<SqliteRow>, Fault> {
    query.fetch_all(conn).await.map_err(classify)
}
