//! The findings about the server's settings and the tables.

use std::time::Duration;

use dlock_core::{Finding, Level};
use sqlx::postgres::PgRow;

use super::{
    link::Link,
    literal::Arg,
    queries,
    schema::{Tables, in_schema, prepare},
    statement::{get, no_answer},
};
use crate::engine::{Fault, Limit, of_tables, room};

/// A transaction that is open for longer than this gets a finding, in seconds.
const LONG: i64 = 60;
/// A database whose oldest transaction id is older than this many times the age from which on the
/// server freezes rows gets a finding.
const UNFROZEN: i64 = 3;
/// If row versions of this many transactions stay for a standby or a replication slot, or so many old
/// versions for autovacuum, there is a finding.
const MANY: i64 = 100_000;
/// A server that closes idle connections sooner than this gets a finding, in milliseconds.
const SOON: i64 = 60_000;

const DURABILITY: &str = "durability";

/// Returns the findings about the server and the tables.
pub(super) async fn examine(link: &mut Link, tables: Tables) -> Result<Vec<Finding>, Fault> {
    let rows = link.fetch(queries::EXAMINE, &[]).await?;
    let Some(row) = rows.first() else { return Err(no_answer()) };
    let mut findings = server(row)?;
    // A standby has a finding already, and is refused for it.
    if !get::<bool>(row, 5)? {
        let prepared = prepare(link, tables, false).await;
        // Two users may have two search paths, and then one name has two locks.
        if let Ok(prepared) = &prepared {
            let found = format!("dlock's tables are in the schema {:.100}", prepared.schema);
            findings.push(Finding::fine("schema", found));
            let is_fine = |found: &Finding| found.about != DURABILITY || found.level == Level::Fine;
            let statement = match tables {
                Tables::Plain => queries::PLAIN_IS_DURABLE,
                Tables::Locks | Tables::Advisory => queries::IS_DURABLE,
            };
            let name = match tables {
                Tables::Locks => "dlock_lock",
                Tables::Plain => "dlock_plain",
                Tables::Advisory => "dlock_advisory",
            };
            let table_name = in_schema(&prepared.schema, name);
            let rows = link.fetch(queries::CREATORS, &[Arg::Text(&table_name)]).await?;
            let roles = rows.iter().map(|row| Ok((get(row, 0)?, get(row, 1)?)));
            let rows = link.fetch(queries::VACUUM, &[Arg::Text(&table_name)]).await?;
            let settings =
                |row| Ok::<TableVacuum, Fault>((get(row, 0)?, get(row, 1)?, get(row, 2)?));
            if let Some(found) = table_vacuum(name, rows.first().map(settings).transpose()?) {
                findings.retain(|other| other.about != "vacuum" || other.level > Level::Fine);
                findings.push(found);
            }
            findings.push(creators(&roles.collect::<Result<Vec<_>, Fault>>()?));
            let rows = link.fetch(queries::TABLE_RIGHTS, &[Arg::Text(&table_name)]).await?;
            let role = rows.first().map(|row| get::<Option<String>>(row, 0)).transpose()?;
            findings.push(table_rights(&table_name, role, rows.len()));
            if findings.iter().all(is_fine) && !link.is_durable(statement).await? {
                findings.push(table());
            }
        }
        findings.push(of_tables(prepared)?);
    }
    Ok(findings)
}

fn server(row: &PgRow) -> Result<Vec<Finding>, Fault> {
    let text = |at| get::<String>(row, at);
    let micros = u64::try_from(get::<i64>(row, 6)?).unwrap_or(0);
    Ok(vec![
        // Older servers are refused by the check of the tables.
        Finding::fine("version", format!("PostgreSQL {:.40}", text(0)?)),
        role(get(row, 5)?),
        durability(&text(1)?, &text(2)?, &text(3)?),
        Finding::clock(Duration::from_micros(micros)),
        connections(row)?,
        idle(get(row, 9)?),
        vacuum(&text(4)?, &text(15)?),
        transactions(get(row, 10)?, get(row, 11)?),
        slots(get(row, 12)?),
        standbys(get(row, 21)?, get(row, 22)?),
        freezing(get(row, 13)?, get(row, 14)?, &text(20)?),
    ])
}

/// Of the server, the user and the database.
fn connections(row: &PgRow) -> Result<Finding, Fault> {
    let all = Limit { name: "max_connections", left: get(row, 7)?, most: get(row, 8)? };
    let mut limits = Vec::new();
    for (at, name) in [(16, "the user's CONNECTION LIMIT"), (18, "the database's CONNECTION LIMIT")]
    {
        if let Some(most @ 0..) = get::<Option<i64>>(row, at)? {
            limits.push(Limit { name, most, left: most - get::<i64>(row, at + 1)? });
        }
    }
    Ok(room(all, limits))
}

fn role(is_standby: bool) -> Finding {
    match is_standby {
        true => Finding::wrong(
            "role",
            "it is a standby, which accepts no writes",
            "give the address of the primary (target_session_attrs=read-write picks it out of \
             several)",
        ),
        false => Finding::fine("role", "it is a primary"),
    }
}

fn durability(fsync: &str, commit: &str, pages: &str) -> Finding {
    let (found, remedy) = match (fsync, commit, pages) {
        ("off", ..) => (
            "a crash of the machine may lose anything (fsync off)".to_owned(),
            "run ALTER SYSTEM SET fsync = on and SELECT pg_reload_conf()",
        ),
        (_, "off", _) => (
            "a crash of the server may lose the last grants (synchronous_commit off)".to_owned(),
            "leave dlock.durability at full, and run ALTER ROLE name SET synchronous_commit = on",
        ),
        (.., "off") => (
            "a crash of the machine may damage the tables (full_page_writes off)".to_owned(),
            "run ALTER SYSTEM SET full_page_writes = on and SELECT pg_reload_conf()",
        ),
        _ => {
            let found = format!(
                "every commit is on disk before it is answered (synchronous_commit {commit:.20})"
            );
            return Finding::fine(DURABILITY, found);
        }
    };
    Finding::warning(DURABILITY, found, remedy)
}

fn table() -> Finding {
    Finding::warning(
        "table",
        "dlock's table is unlogged, so a crash may empty it; or it is a view or a partitioned table, \
         whose storage dlock does not check",
        "run ALTER TABLE name SET LOGGED, or let dlock create its own table",
    )
}

/// The schema, and the role that may create in it, or PUBLIC.
type Creator = (String, Option<String>);

fn creators(found: &[Creator]) -> Finding {
    let Some((schema, role)) = found.first() else {
        let found = "no other user may create tables in the schemas where dlock looks for its own";
        return Finding::fine("schema rights", found);
    };
    let role = role.as_deref().unwrap_or("PUBLIC");
    let others = match found.len() - 1 {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    Finding::warning(
        "schema rights",
        format!("{role:.63} may create in the schema {schema:.63}{others}"),
        format!(
            "run REVOKE CREATE ON SCHEMA {schema:.63} FROM {role:.63}: a user who may create there \
             can put a table where dlock looks for its own, and a program without a schema in front \
             of its names can run that user's functions and operators"
        ),
    )
}

/// `role` is the first of `roles` roles, or PUBLIC.
fn table_rights(table: &str, role: Option<Option<String>>, roles: usize) -> Finding {
    let Some(role) = role else {
        let found = "no other user may add triggers or foreign keys to dlock's table";
        return Finding::fine("table rights", found);
    };
    let role = role.as_deref().unwrap_or("PUBLIC");
    let others = match roles.saturating_sub(1) {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    Finding::warning(
        "table rights",
        format!("{role:.63} may add triggers or foreign keys to {table:.130}{others}"),
        format!(
            "run REVOKE TRIGGER, REFERENCES ON {table:.130} FROM {role:.63}: triggers run with the \
             rights of the user that writes"
        ),
    )
}

fn idle(millis: i64) -> Finding {
    match millis {
        0 => Finding::fine("idle", "idle connections stay open"),
        SOON.. => Finding::fine("idle", format!("idle connections are closed after {millis} ms")),
        _ => Finding::warning(
            "idle",
            format!("connections are closed after {millis} ms without a statement"),
            "run ALTER ROLE name SET idle_session_timeout = 0: after each closed connection the \
             next lock has to open a new one, and waiters may miss notifications",
        ),
    }
}

fn vacuum(autovacuum: &str, track_counts: &str) -> Finding {
    match (autovacuum, track_counts) {
        ("off", _) => Finding::warning(
            "vacuum",
            "old row versions stay, and make locks slower and slower (autovacuum off)",
            "run ALTER SYSTEM SET autovacuum = on and SELECT pg_reload_conf(), or run VACUUM \
             dlock_lock regularly",
        ),
        (_, "off") => Finding::warning(
            "vacuum",
            "old row versions stay, and make locks slower and slower: autovacuum does not count them \
             (track_counts off)",
            "run ALTER SYSTEM SET track_counts = on and SELECT pg_reload_conf(), and ALTER ROLE name \
             RESET track_counts",
        ),
        _ => Finding::fine("vacuum", "autovacuum is on"),
    }
}

/// Whether autovacuum is off for a table, after how many old row versions it cleans the table, and
/// how many rows that has.
type TableVacuum = (bool, i64, i64);

/// Returns the finding about the table's own settings if they are not fine.
fn table_vacuum(table: &str, settings: Option<TableVacuum>) -> Option<Finding> {
    let (found, remedy) = match settings {
        None => (
            format!("not visible for {table}: the settings of its autovacuum"),
            format!("check autovacuum_enabled on {table}, or run the doctor as its owner"),
        ),
        Some((true, ..)) => (
            format!(
                "old row versions stay, and make locks slower and slower (autovacuum_enabled is \
                 false on {table})"
            ),
            format!("run ALTER TABLE {table} RESET (autovacuum_enabled)"),
        ),
        // With the default settings, it is a fifth of the rows.
        Some((false, after, rows)) if after > MANY.max(rows) => (
            format!(
                "old row versions stay, and make locks slower and slower: autovacuum cleans {table} \
                 only after {after} of them"
            ),
            format!(
                "run ALTER TABLE {table} SET (autovacuum_vacuum_threshold = 1000, \
                 autovacuum_vacuum_scale_factor = 0.2)"
            ),
        ),
        Some(_) => return None,
    };
    Some(Finding::warning("vacuum", found, remedy))
}

fn slots(idle: i64) -> Finding {
    match idle {
        0 => Finding::fine("slots", "no replication slot is left unread"),
        _ => Finding::warning(
            "slots",
            format!(
                "{idle} replication slots are not in use: they may keep old row versions alive, \
                 which makes locks slow, and fill the disk"
            ),
            "start what reads them, or drop them (SELECT slot_name, xmin, restart_lsn FROM \
             pg_replication_slots WHERE NOT active)",
        ),
    }
}

/// `hidden` is the number of standbys about which this user sees nothing.
fn standbys(age: i64, hidden: i64) -> Finding {
    match (age, hidden) {
        (MANY.., _) => Finding::warning(
            "standbys",
            format!(
                "the row versions of the last {age} transactions stay for a standby or a \
                 replication slot, which makes locks slow"
            ),
            "end long queries on the standbys, or set hot_standby_feedback = off there, and check \
             that each slot is read (SELECT application_name, backend_xmin FROM \
             pg_stat_replication; SELECT slot_name, xmin FROM pg_replication_slots)",
        ),
        (_, 1..) => Finding::warning(
            "standbys",
            format!("not visible for {hidden} standbys: whether old row versions stay for them"),
            "run GRANT pg_read_all_stats TO the user, or run the doctor as another one: old row \
             versions make locks slow",
        ),
        _ => Finding::fine("standbys", "no old row versions stay for standbys"),
    }
}

fn freezing(age: i64, limit: i64, database: &str) -> Finding {
    if age < limit.saturating_mul(UNFROZEN) {
        return Finding::fine("freezing", "old transaction ids are frozen in time");
    }
    Finding::warning(
        "freezing",
        format!(
            "the oldest transaction id, in the database {database:?}, is {age} transactions old: \
             after 2 billion the server takes no more writes in any database"
        ),
        "end old transactions, prepared transactions and replication slots, and run VACUUM FREEZE \
         in that database (for template0, run ALTER DATABASE template0 ALLOW_CONNECTIONS true first)",
    )
}

/// `hidden` is the number of sessions whose transactions this user can't see.
fn transactions(seconds: i64, hidden: i64) -> Finding {
    match (seconds, hidden) {
        (..LONG, 1..) => Finding::warning(
            "transactions",
            format!(
                "not visible for {hidden} sessions in this database, which are of other users or \
                 have track_activities off"
            ),
            "run GRANT pg_read_all_stats TO the user, or run the doctor as another one, and set \
             track_activities = on for all: a long transaction keeps old row versions alive, which \
             makes locks slow",
        ),
        (LONG.., _) => Finding::warning(
            "transactions",
            format!("one in this database has been open for {seconds} s"),
            "end it (SELECT pid, query FROM pg_stat_activity ORDER BY xact_start; SELECT gid FROM \
             pg_prepared_xacts), or give the locks a database of their own: it keeps old row \
             versions alive, which makes locks slow",
        ),
        (..LONG, _) => {
            Finding::fine("transactions", "none in this database has been open for long")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_wrong_setting_is_reported_with_its_remedy() {
        for (finding, level, remedy) in [
            (role(false), Level::Fine, ""),
            (role(true), Level::Wrong, "primary"),
            (durability("on", "on", "on"), Level::Fine, ""),
            (durability("on", "remote_apply", "on"), Level::Fine, ""),
            (durability("off", "on", "on"), Level::Warning, "SET fsync = on"),
            (durability("on", "off", "on"), Level::Warning, "synchronous_commit = on"),
            (durability("on", "on", "off"), Level::Warning, "full_page_writes = on"),
            (idle(0), Level::Fine, ""),
            (idle(59_999), Level::Warning, "idle_session_timeout = 0"),
            (idle(60_000), Level::Fine, ""),
            (creators(&[]), Level::Fine, ""),
            (creators(&[("public".to_owned(), None)]), Level::Warning, "public FROM PUBLIC"),
            (table_rights("s.t", None, 0), Level::Fine, ""),
            (table_rights("s.t", Some(None), 1), Level::Warning, "ON s.t FROM PUBLIC"),
            (vacuum("on", "on"), Level::Fine, ""),
            (vacuum("off", "on"), Level::Warning, "autovacuum = on"),
            (vacuum("on", "off"), Level::Warning, "track_counts = on"),
            (transactions(59, 0), Level::Fine, ""),
            (transactions(59, 1), Level::Warning, "pg_read_all_stats"),
            (transactions(60, 1), Level::Warning, "pg_stat_activity"),
            (slots(0), Level::Fine, ""),
            (slots(1), Level::Warning, "pg_replication_slots"),
            (freezing(599_999_999, 200_000_000, "a"), Level::Fine, ""),
            (freezing(600_000_000, 200_000_000, "a"), Level::Warning, "VACUUM FREEZE"),
            (standbys(99_999, 0), Level::Fine, ""),
            (standbys(99_999, 1), Level::Warning, "pg_read_all_stats"),
            (standbys(100_000, 0), Level::Warning, "hot_standby_feedback = off"),
        ] {
            assert_eq!(finding.level, level, "{finding:?}");
            let says = finding.remedy.as_deref().unwrap_or_default();
            assert!(says.contains(remedy), "{finding:?}");
            assert_eq!(says.is_empty(), level == Level::Fine, "{finding:?}");
        }
    }

    #[test]
    fn a_table_that_autovacuum_cleans_too_late_is_reported() {
        for (settings, remedy) in [
            (None, Some("as its owner")),
            (Some((true, 50, 0)), Some("RESET (autovacuum_enabled)")),
            (Some((false, 100_001, 0)), Some("autovacuum_vacuum_threshold = 1000")),
            (Some((false, 100_000, 0)), None),
            (Some((false, 200_050, 1_000_000)), None),
        ] {
            let found = table_vacuum("dlock_lock", settings);
            let says = found.and_then(|finding| finding.remedy);
            assert_eq!(says.is_some(), remedy.is_some(), "{settings:?}");
            let says = says.unwrap_or_default();
            assert!(says.contains(remedy.unwrap_or_default()), "{says}");
        }
    }
}
