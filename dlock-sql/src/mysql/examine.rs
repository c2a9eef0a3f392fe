//! How the server is set up, and what that means for locks.

use std::{collections::HashMap, time::Duration};

use dlock_core::Finding;

use super::{
    answer::{micros, text},
    check::{check_rights, check_server},
    conn::MysqlConn,
    plain, queries, schema,
};
use crate::engine::{Fault, of_tables, room};

/// Connections that are closed sooner when they are idle are told of, in seconds.
const SOON: i64 = 60;

/// Whose tables are looked for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Tables {
    Locks,
    Plain,
}

/// What there is to say of the server and of the tables.
pub(super) async fn examine(conn: &mut MysqlConn, tables: Tables) -> Result<Vec<Finding>, Fault> {
    let mut settings = HashMap::new();
    for statement in [queries::SETTINGS, queries::STATUS] {
        for row in &conn.fetch(sqlx::query(statement)).await? {
            settings.insert(text(row, 0)?.to_lowercase(), text(row, 1)?);
        }
    }
    let mut findings = server(&settings);
    for row in &conn.fetch(sqlx::query(queries::NOW)).await? {
        findings.push(Finding::clock(Duration::from_micros(micros(row, 0)?)));
    }
    findings.push(of_tables(prepared(conn, tables).await)?);
    Ok(findings)
}

/// Checks what is checked when connecting: the server's version and role, the tables, the rights.
async fn prepared(conn: &mut MysqlConn, tables: Tables) -> Result<(), Fault> {
    check_server(conn).await?;
    match tables {
        Tables::Locks => {
            schema::prepare(conn, false).await?;
            check_rights(conn).await
        }
        Tables::Plain => plain::probe(conn).await,
    }
}

fn server(settings: &HashMap<String, String>) -> Vec<Finding> {
    let value = |name: &str| settings.get(name).map_or("", String::as_str);
    let number = |name: &str| value(name).parse::<i64>().unwrap_or(0);
    let mut findings = vec![
        // Older ones are refused with the tables.
        Finding::fine("version", format!("version {:.80}", value("version"))),
        durability(value("innodb_flush_log_at_trx_commit")),
        room(number("max_connections") - number("threads_connected"), number("max_connections")),
        idle(number("wait_timeout")),
    ];
    if is_on(value("log_bin")) {
        findings.push(binlog(value("sync_binlog")));
    }
    if is_on(value("wsrep_on")) {
        findings.push(Finding::warning(
            "galera",
            "the server is a node of a Galera cluster (wsrep_on), on which dlock is not tested",
            "have all clients use one node, by a proxy with a single writer: nodes that are written \
             to at the same time refuse some of the writes with deadlocks",
        ));
    }
    findings
}

fn is_on(value: &str) -> bool {
    matches!(value, "ON" | "1")
}

fn durability(flush: &str) -> Finding {
    match flush {
        "1" => Finding::fine(
            "durability",
            "what is answered is on disk (innodb_flush_log_at_trx_commit 1)",
        ),
        _ => Finding::warning(
            "durability",
            format!(
                "a crash may lose the last grants (innodb_flush_log_at_trx_commit {flush:.10})"
            ),
            "run SET GLOBAL innodb_flush_log_at_trx_commit = 1, and write it into my.cnf",
        ),
    }
}

fn binlog(sync: &str) -> Finding {
    match sync {
        "1" => Finding::fine("replication", "the binary log is on disk (sync_binlog 1)"),
        _ => Finding::warning(
            "replication",
            format!("after a crash replicas may lack the last grants (sync_binlog {sync:.20})"),
            "run SET GLOBAL sync_binlog = 1, and write it into my.cnf: it matters when a replica \
             takes over",
        ),
    }
}

fn idle(seconds: i64) -> Finding {
    match seconds {
        SOON.. => Finding::fine("idle", format!("idle connections are closed after {seconds} s")),
        _ => Finding::warning(
            "idle",
            format!("connections are closed after {seconds} s without a statement (wait_timeout)"),
            "run SET GLOBAL wait_timeout = 28800, and write it into my.cnf: each costs the next lock \
             a new connection",
        ),
    }
}

#[cfg(test)]
mod tests {
    use dlock_core::Level;

    use super::*;

    #[test]
    fn each_setting_that_is_amiss_is_found_alone() {
        let well = [
            ("version", "10.11.6-MariaDB"),
            ("innodb_flush_log_at_trx_commit", "1"),
            ("max_connections", "151"),
            ("threads_connected", "5"),
            ("wait_timeout", "28800"),
            ("log_bin", "ON"),
            ("sync_binlog", "1"),
            ("wsrep_on", "OFF"),
        ];
        let amiss = |name: &str, value: &str| {
            let mut settings: HashMap<String, String> = well
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect();
            settings.insert(name.to_owned(), value.to_owned());
            let findings = server(&settings);
            let amiss = findings.into_iter().filter(|finding| finding.level > Level::Fine);
            amiss.map(|finding| (finding.about, finding.level)).collect::<Vec<_>>()
        };
        assert_eq!(amiss("version", "8.4.0"), []);
        // Without a binary log it does not matter how that is kept.
        let mut without = HashMap::from([("log_bin".to_owned(), "OFF".to_owned())]);
        without.insert("sync_binlog".to_owned(), "0".to_owned());
        assert!(server(&without).iter().all(|finding| finding.about != "replication"));
        for (name, value, about) in [
            ("innodb_flush_log_at_trx_commit", "2", "durability"),
            ("threads_connected", "150", "connections"),
            ("wait_timeout", "10", "idle"),
            ("sync_binlog", "0", "replication"),
            ("wsrep_on", "ON", "galera"),
        ] {
            assert_eq!(amiss(name, value), [(about, Level::Warning)], "{name}");
        }
    }
}
