//! The findings about the server's settings and the tables.

use std::time::Duration;

use dlock_core::{Finding, Level};
use sqlx::postgres::PgRow;

use super::{
    answer::{get, no_answer},
    link::Link,
    queries,
    schema::{Tables, prepare},
};
use crate::engine::{Fault, of_tables, room};

/// A transaction that is open for longer than this gets a finding, in seconds.
const LONG: i64 = 60;
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
            let keeps = match tables {
                Tables::Plain => queries::PLAIN_KEEPS,
                Tables::Locks | Tables::Advisory => queries::KEEPS,
            };
            if findings.iter().all(is_fine) && !link.keeps(keeps).await? {
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
        room(get(row, 7)?, get(row, 8)?),
        idle(get(row, 9)?),
        vacuum(&text(4)?),
        transactions(get(row, 10)?),
    ])
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

fn vacuum(autovacuum: &str) -> Finding {
    match autovacuum {
        "off" => Finding::warning(
            "vacuum",
            "old row versions stay, and make locks slower and slower (autovacuum off)",
            "run ALTER SYSTEM SET autovacuum = on and SELECT pg_reload_conf(), or run VACUUM \
             dlock_lock regularly",
        ),
        _ => Finding::fine("vacuum", "autovacuum is on"),
    }
}

fn transactions(seconds: i64) -> Finding {
    match seconds {
        LONG.. => Finding::warning(
            "transactions",
            format!("one in this database has been open for {seconds} s"),
            "end it (SELECT pid, query FROM pg_stat_activity ORDER BY xact_start), or give the \
             locks a database of their own: it keeps old row versions alive, which makes locks \
             slow",
        ),
        _ => Finding::fine("transactions", "none in this database has been open for long"),
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
            (vacuum("on"), Level::Fine, ""),
            (vacuum("off"), Level::Warning, "autovacuum = on"),
            (transactions(59), Level::Fine, ""),
            (transactions(60), Level::Warning, "pg_stat_activity"),
        ] {
            assert_eq!(finding.level, level, "{finding:?}");
            let says = finding.remedy.as_deref().unwrap_or_default();
            assert!(says.contains(remedy), "{finding:?}");
            assert_eq!(says.is_empty(), level == Level::Fine, "{finding:?}");
        }
    }
}
