//! Checks dlock's tables in a file, and creates them if configured.
//!
//! A file with tables of another program is refused, unless it has dlock's tables already.
//! Otherwise a wrong path would write into another program's data.

use dlock_core::ConfigIssue;
use sqlx::{Row as _, SqliteConnection};

use super::{error::classify, queries};
use crate::engine::Fault;

/// dlock's tables.
const OURS: [&str; 2] = ["dlock_lock", "dlock_schema"];

/// Checks that the tables exist in our version.
pub(super) async fn prepare(conn: &mut SqliteConnection, create: bool) -> Result<(), Fault> {
    let tables = names(conn, queries::TABLES).await?;
    if let Some(trigger) = names(conn, queries::TRIGGERS).await?.first() {
        return Err(foreign_trigger(trigger));
    }
    let missing = OURS.iter().any(|ours| !tables.iter().any(|table| table == ours));
    let foreign = tables.iter().find(|table| !OURS.contains(&table.as_str()));
    match (missing, create, foreign) {
        (false, _, _) => {}
        (true, false, _) => return Err(missing_schema()),
        (true, true, Some(table)) => return Err(foreign_tables(table)),
        (true, true, None) => {
            sqlx::raw_sql(queries::SCHEMA).execute(&mut *conn).await.map_err(classify)?;
        }
    }
    check_version(conn).await
}

fn missing_schema() -> Fault {
    Fault::config(
        ConfigIssue::SchemaMissing,
        "the file does not hold dlock's tables: open it with create_schema \
         (dlock.create_schema=true), or run SqliteConfig::SCHEMA on it",
    )
}

fn foreign_tables(table: &str) -> Fault {
    let table = format!("{table:.80}");
    Fault::config(
        ConfigIssue::ForeignStore,
        format!(
            "the file belongs to another program (it has a table {table:?}): give the locks a \
             file of their own, or run SqliteConfig::SCHEMA on this one"
        ),
    )
}

fn foreign_trigger(trigger: &str) -> Fault {
    Fault::config(
        ConfigIssue::ForeignStore,
        format!(
            "the trigger {trigger:.80} of another program runs on each write to dlock's tables: \
             drop it, or give the locks a file of their own"
        ),
    )
}

async fn names(conn: &mut SqliteConnection, query: &'static str) -> Result<Vec<String>, Fault> {
    let rows = sqlx::query(query).fetch_all(conn).await.map_err(classify)?;
    rows.iter().map(|row| row.try_get(0).map_err(classify)).collect()
}

async fn check_version(conn: &mut SqliteConnection) -> Result<(), Fault> {
    let rows = sqlx::query(queries::VERSION).fetch_all(conn).await.map_err(classify)?;
    let version: Option<i64> =
        rows.first().map(|row| row.try_get(0)).transpose().map_err(classify)?;
    let ours = queries::SCHEMA_VERSION;
    match version {
        Some(found) if found == ours => Ok(()),
        Some(newer) if newer > ours => Err(Fault::newer(newer, ours)),
        _ => Err(Fault::config(
            ConfigIssue::ForeignStore,
            "the table dlock_schema holds no version that dlock has ever written: give the locks a \
             file of their own",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_foreign_table_is_shown_in_part() {
        let error = foreign_tables(&"x".repeat(100_000)).error;
        assert!(error.to_string().len() < 400, "{error}");
    }
}
