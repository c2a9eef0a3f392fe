//! Whether a database holds dlock's tables, and making them when asked to.

use dlock_core::{ConfigIssue, Error};

use super::{
    answer::{get, text},
    conn::MysqlConn,
    error::is_missing,
    queries,
};
use crate::engine::Fault;

/// The columns of `dlock_lock`, as far as it matters what they are.
const COLUMNS: [(&str, &str, bool); 6] = [
    ("name", "varbinary", true),
    ("base", "bigint", false),
    ("seen", "bigint", false),
    ("cut", "bigint", false),
    ("snap", "mediumblob", false),
    ("log", "mediumblob", false),
];

/// Makes sure that the tables are there, in our version.
pub(super) async fn prepare(conn: &mut MysqlConn, create: bool) -> Result<(), Fault> {
    match check(conn).await {
        // Somebody may be about to make them, so that they are there in part.
        Err(fault) if create && is_missing(&fault) => {
            conn.script(queries::SCHEMA).await?;
            check(conn).await
        }
        checked => checked,
    }
}

async fn check(conn: &mut MysqlConn) -> Result<(), Fault> {
    check_version(version(conn).await?)?;
    check_engines(conn).await?;
    check_columns(conn).await
}

async fn version(conn: &mut MysqlConn) -> Result<Option<i64>, Fault> {
    let sql = conn.sql(queries::VERSION);
    let found = conn.fetch(sqlx::query(sql)).await?;
    found.first().map(|found| get(found, 0)).transpose()
}

fn check_version(version: Option<i64>) -> Result<(), Error> {
    match version {
        Some(queries::SCHEMA_VERSION) => Ok(()),
        Some(newer) if newer > queries::SCHEMA_VERSION => Err(Error::config(
            ConfigIssue::SchemaNewer,
            format!(
                "the tables have version {newer}, this program knows {}: run the same version of \
                 dlock everywhere",
                queries::SCHEMA_VERSION
            ),
        )),
        None => Err(Error::config(
            ConfigIssue::SchemaMissing,
            "dlock's tables are only half made: open with create_schema \
             (dlock.create_schema=true), or run MysqlConfig::SCHEMA",
        )),
        Some(_) => Err(Error::config(
            ConfigIssue::ForeignStore,
            "the table dlock_schema tells no version that dlock has ever written: give the locks a \
             database of their own",
        )),
    }
}

/// Other engines than InnoDB lock whole tables, or do not undo what has failed half-way.
async fn check_engines(conn: &mut MysqlConn) -> Result<(), Fault> {
    let sql = conn.sql(queries::ENGINES);
    let found = conn.fetch(sqlx::query(sql)).await?;
    let mut has_rows = false;
    for found in &found {
        let table = text(found, 0)?;
        let engine = get::<Option<Vec<u8>>>(found, 1)?.unwrap_or_default();
        let engine = String::from_utf8_lossy(&engine).into_owned();
        has_rows |= table == "dlock_lock";
        if !engine.eq_ignore_ascii_case("InnoDB") {
            let engine = format!("{engine:.40}");
            return Err(foreign(&format!(
                "the table {table} is kept by {engine:?} and not by InnoDB: run ALTER TABLE \
                 {table} ENGINE = InnoDB"
            )));
        }
    }
    if !has_rows {
        return Err(Error::config(
            ConfigIssue::SchemaMissing,
            "the database has no table dlock_lock, or the user has no right to it: open with \
             create_schema (dlock.create_schema=true), run MysqlConfig::SCHEMA, or run GRANT \
             SELECT, INSERT, UPDATE, DELETE ON dlock_lock TO the user",
        )
        .into());
    }
    Ok(())
}

/// Names of another type would be compared by their looks.
async fn check_columns(conn: &mut MysqlConn) -> Result<(), Fault> {
    let sql = conn.sql(queries::COLUMNS);
    let found = conn.fetch(sqlx::query(sql)).await?;
    let mut columns = Vec::new();
    for found in &found {
        columns.push((text(found, 0)?, text(found, 1)?, text(found, 2)? == "PRI"));
    }
    let ours = COLUMNS.map(|(name, kind, key)| (name.to_owned(), kind.to_owned(), key));
    if columns != ours {
        return Err(foreign(
            "the table dlock_lock has not the columns that dlock gives it: give the locks a \
             database of their own",
        ));
    }
    Ok(())
}

fn foreign(what: &str) -> Fault {
    Error::config(ConfigIssue::ForeignStore, what.to_owned()).into()
}
