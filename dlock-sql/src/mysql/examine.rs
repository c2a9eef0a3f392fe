//! The findings about the server's settings and the tables.

use std::time::Duration;

use dlock_core::Finding;

use super::{
    check::check_server,
    conn::MysqlConn,
    durability::ServerSettings,
    queries,
    schema::{Tables, prepare},
    statement::micros,
};
use crate::engine::{Fault, of_tables, room};

/// A server that closes idle connections sooner than this gets a finding, in seconds.
const SOON: i64 = 60;

/// Returns the findings about the server and the tables.
pub(super) async fn examine(conn: &mut MysqlConn, tables: Tables) -> Result<Vec<Finding>, Fault> {
    let mut findings = server(&ServerSettings::read(conn).await?);
    for row in &conn.rows(queries::NOW).await? {
        findings.push(Finding::clock(Duration::from_micros(micros(row, 0)?)));
    }
    findings.push(of_tables(prepared(conn, tables).await)?);
    Ok(findings)
}

/// Does the same checks as a connect: the server's version and role, the tables, the rights.
async fn prepared(conn: &mut MysqlConn, tables: Tables) -> Result<(), Fault> {
    check_server(conn).await?;
    prepare(conn, tables, false).await
}

fn server(settings: &ServerSettings) -> Vec<Finding> {
    let number = |name: &str| settings.value(name).parse::<i64>().unwrap_or(0);
    let mut findings = vec![
        // Older servers are refused by the check of the tables.
        Finding::fine("version", format!("version {:.80}", settings.value("version"))),
        connections(settings),
        idle(number("wait_timeout")),
    ];
    let weaknesses = settings.weaknesses();
    if weaknesses.is_empty() {
        let found = "every commit is on disk before it is answered (innodb_flush_log_at_trx_commit \
                     1)";
        findings.push(Finding::fine("durability", found));
    }
    findings.extend(weaknesses);
    findings
}

fn connections(settings: &ServerSettings) -> Finding {
    let number = |name: &str| settings.get(name)?.parse::<i64>().ok();
    match (number("max_connections"), number("threads_connected")) {
        (Some(most), Some(used)) => room(most - used, most),
        _ => Finding::warning(
            "connections",
            "the number of connections, or its limit, is not visible to this user",
            "check Threads_connected and max_connections as another user",
        ),
    }
}

fn idle(seconds: i64) -> Finding {
    match seconds {
        SOON.. => Finding::fine("idle", format!("idle connections are closed after {seconds} s")),
        _ => Finding::warning(
            "idle",
            format!("connections are closed after {seconds} s without a statement (wait_timeout)"),
            "run SET GLOBAL wait_timeout = 28800, and write it into my.cnf: after each closed \
             connection the next lock has to open a new one",
        ),
    }
}

#[cfg(test)]
mod tests {
    use dlock_core::Level;

    use super::*;

    #[test]
    fn each_wrong_setting_is_found_alone() {
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
            let owned = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
            let settings = well.into_iter().chain([(name, value)]).map(owned).collect();
            let findings = server(&ServerSettings(settings));
            let amiss = findings.into_iter().filter(|finding| finding.level > Level::Fine);
            amiss.map(|finding| (finding.about, finding.level)).collect::<Vec<_>>()
        };
        assert_eq!(amiss("version", "8.4.0"), []);
        for (name, value, about) in [
            ("innodb_flush_log_at_trx_commit", "2", "durability"),
            ("threads_connected", "150", "connections"),
            ("wait_timeout", "10", "idle"),
            ("sync_binlog", "0", "replication"),
            ("wsrep_on", "ON", "galera"),
            // As a server answers that does not reveal it.
            ("threads_connected", "", "connections"),
            ("max_connections", "", "connections"),
            ("wait_timeout", "", "idle"),
            ("innodb_flush_log_at_trx_commit", "", "durability"),
        ] {
            assert_eq!(amiss(name, value), [(about, Level::Warning)], "{name}");
        }
    }
}
