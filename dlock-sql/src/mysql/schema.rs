//! Checks dlock's tables in a database, and creates them if configured.
//!
//! MySQL commits each `CREATE TABLE` on its own. So if a program has died in between, or is
//! creating them at the same time, only a part of the tables may exist. Each check then reports
//! missing tables, and creating them again completes them.

use dlock_core::ConfigIssue;

use super::{
    check::check_rights,
    conn::MysqlConn,
    queries,
    statement::{get, text},
};
use crate::engine::Fault;

/// The columns of `dlock_lock`, with the properties that matter.
const COLUMNS: [(&str, &str, bool); 6] = [
    ("name", "varbinary", true),
    ("base", "bigint", false),
    ("seen", "bigint", false),
    ("cut", "bigint", false),
    ("snap", "mediumblob", false),
    ("log", "mediumblob", false),
];

/// The begin of the statement in `schema.sql` that writes the version.
const FILL: &str = "INSERT IGNORE";

/// The kind of tables that are needed.
#[derive(Clone, Copy, Debug)]
pub(super) enum Tables {
    Locks,
    Plain,
}

/// Checks that the tables exist in our version, and that the user has all rights.
pub(super) async fn prepare(
    conn: &mut MysqlConn,
    tables: Tables,
    create: bool,
) -> Result<(), Fault> {
    match check(conn, tables).await {
        // A part of them may exist: see above.
        Err(fault) if create && fault.is_of_missing_tables() => {
            create_tables(conn, tables).await?;
            check(conn, tables).await
        }
        checked => checked,
    }
}

async fn create_tables(conn: &mut MysqlConn, tables: Tables) -> Result<(), Fault> {
    let Tables::Locks = tables else { return conn.script(queries::PLAIN_SCHEMA).await };
    let (tables, version) = queries::SCHEMA.split_at(queries::SCHEMA.find(FILL).unwrap_or(0));
    conn.script(tables).await?;
    // Another user may have made a view just before, and the server then creates no table.
    refuse_view(conn, queries::ENGINES).await?;
    conn.script(version).await
}

async fn check(conn: &mut MysqlConn, tables: Tables) -> Result<(), Fault> {
    if let Tables::Plain = tables {
        refuse_view(conn, queries::PLAIN_ENGINE).await?;
        let checked = check_rights(conn, "dlock_plain", &queries::PLAIN_RIGHTS).await;
        return checked.map_err(|fault| match fault.is_of_missing_tables() {
            true => Fault::config(
                ConfigIssue::SchemaMissing,
                "the database has no table dlock_plain: open with create_schema \
                 (dlock.create_schema=true), or run MysqlConfig::PLAIN_SCHEMA",
            ),
            false => fault,
        });
    }
    // A view could run functions of another user, so it is refused before anything is read from it.
    refuse_view(conn, queries::ENGINES).await?;
    // With another version, the other checks would report the wrong reason.
    check_version(version(conn).await?)?;
    if !check_engines(conn).await? {
        return Err(Fault::config(
            ConfigIssue::SchemaMissing,
            "the database has no table dlock_lock, or the user has no right to it: open with \
             create_schema (dlock.create_schema=true), run MysqlConfig::SCHEMA, or run GRANT \
             SELECT, INSERT, UPDATE, DELETE ON dlock_lock TO the user",
        ));
    }
    check_columns(conn).await?;
    check_rights(conn, "dlock_lock", &queries::RIGHTS).await
}

async fn version(conn: &mut MysqlConn) -> Result<Option<i64>, Fault> {
    let found = conn.rows(queries::VERSION).await?;
    found.first().map(|found| get(found, 0)).transpose()
}

fn check_version(version: Option<i64>) -> Result<(), Fault> {
    let ours = queries::SCHEMA_VERSION;
    match version {
        Some(found) if found == ours => Ok(()),
        Some(newer) if newer > ours => Err(Fault::newer(newer, ours)),
        None => Err(Fault::config(
            ConfigIssue::SchemaMissing,
            "dlock's tables are incomplete: open with create_schema (dlock.create_schema=true), or \
             run MysqlConfig::SCHEMA",
        )),
        Some(_) => Err(foreign(
            "the table dlock_schema holds no version that dlock has ever written: give the locks a \
             database of their own",
        )),
    }
}

/// Refuses a view, which has no engine.
async fn refuse_view(conn: &mut MysqlConn, query: &'static str) -> Result<(), Fault> {
    for found in &conn.rows(query).await? {
        if get::<Option<Vec<u8>>>(found, 1)?.is_none() {
            let table = text(found, 0)?;
            return Err(foreign(&format!(
                "{table} is a view, or its files are damaged: give the locks a database of their own"
            )));
        }
    }
    Ok(())
}

/// Refuses other engines than InnoDB: they lock whole tables, or do not roll back a statement that
/// failed half-way. Returns whether `dlock_lock` is among the tables.
async fn check_engines(conn: &mut MysqlConn) -> Result<bool, Fault> {
    let mut has_rows = false;
    for found in &conn.rows(queries::ENGINES).await? {
        let table = text(found, 0)?;
        let engine = get::<Option<Vec<u8>>>(found, 1)?.unwrap_or_default();
        let engine = String::from_utf8_lossy(&engine).into_owned();
        has_rows |= table == "dlock_lock";
        if !engine.eq_ignore_ascii_case("InnoDB") {
            let engine = format!("{engine:.40}");
            return Err(foreign(&format!(
                "the table {table} has the engine {engine:?}, not InnoDB: run ALTER TABLE {table} \
                 ENGINE = InnoDB"
            )));
        }
    }
    Ok(has_rows)
}

/// Checks the types of the columns. Names of another type would not be compared byte for byte.
async fn check_columns(conn: &mut MysqlConn) -> Result<(), Fault> {
    let mut columns = Vec::new();
    for found in &conn.rows(queries::COLUMNS).await? {
        columns.push((text(found, 0)?, text(found, 1)?, text(found, 2)? == "PRI"));
    }
    let ours = COLUMNS.map(|(name, kind, key)| (name.to_owned(), kind.to_owned(), key));
    if columns != ours {
        return Err(foreign(
            "the table dlock_lock does not have the columns that dlock creates: give the locks a \
             database of their own",
        ));
    }
    Ok(())
}

fn foreign(what: &str) -> Fault {
    Fault::config(ConfigIssue::ForeignStore, what.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nothing is written before the check in between.
    #[test]
    fn the_tables_are_created_before_anything_is_written() {
        let (tables, version) = queries::SCHEMA.split_once(FILL).unwrap();
        assert_eq!(tables.matches("CREATE TABLE IF NOT EXISTS").count(), 2);
        for verb in ["INSERT", "UPDATE", "DELETE", "REPLACE"] {
            assert!(!tables.contains(verb), "{verb}");
        }
        assert!(!version.contains("CREATE"));
    }
}
