//! The findings about the server's settings and the tables.

use std::time::Duration;

use dlock_core::Finding;

use super::{
    check::check_server,
    conn::MysqlConn,
    durability::ServerSettings,
    queries,
    schema::{Tables, prepare},
    statement::{get, micros},
};
use crate::engine::{Fault, Limit, of_tables, room};

/// A server that closes idle connections sooner than this gets a finding, in seconds.
const SOON: i64 = 60;

/// Returns the findings about the server and the tables.
pub(super) async fn examine(conn: &mut MysqlConn, tables: Tables) -> Result<Vec<Finding>, Fault> {
    let settings = ServerSettings::read(conn).await?;
    // An account may have a limit of its own. A refusal is a finding.
    let own = conn.rows(queries::OWN_CONNECTIONS).await;
    let own = own.ok().and_then(|rows| get::<i64>(rows.first()?, 0).ok());
    let mut findings = server(&settings, own);
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

/// `own` is the number of connections of this user.
fn server(settings: &ServerSettings, own: Option<i64>) -> Vec<Finding> {
    let number = |name: &str| settings.value(name).parse::<i64>().unwrap_or(0);
    let mut findings = vec![
        // Older servers are refused by the check of the tables.
        Finding::fine("version", format!("version {:.80}", settings.value("version"))),
        connections(settings, own),
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

fn connections(settings: &ServerSettings, own: Option<i64>) -> Finding {
    let number = |name: &str| settings.get(name)?.parse::<i64>().ok();
    let limit = |name, most, used: i64| Limit { name, most, left: most - used };
    let all = number("max_connections").zip(number("threads_connected"));
    let all = all.map(|(most, used)| limit("max_connections", most, used));
    match (all, number("max_user_connections"), own) {
        (Some(all), Some(0), _) => room(all, []),
        (Some(all), Some(most), Some(own)) => room(all, [limit("max_user_connections", most, own)]),
        _ => Finding::warning(
            "connections",
            "the number of connections, or its limit, is not visible to this user",
            "check Threads_connected, max_connections and max_user_connections as another user",
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
            ("max_user_connections", "0"),
            ("threads_connected", "5"),
            ("wait_timeout", "28800"),
            ("log_bin", "ON"),
            ("sync_binlog", "1"),
            ("wsrep_on", "OFF"),
        ];
        let amiss = |name: &str, value: &str| {
            let owned = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
            let settings = well.into_iter().chain([(name, value)]).map(owned).collect();
            let findings = server(&ServerSettings(settings), Some(1));
            let amiss = findings.into_iter().filter(|finding| finding.level > Level::Fine);
            amiss.map(|finding| (finding.about, finding.level)).collect::<Vec<_>>()
        };
        assert_eq!(amiss("version", "8.4.0"), []);
        for (name, value, about) in [
            ("innodb_flush_log_at_trx_commit", "2", "durability"),
            ("threads_connected", "150", "connections"),
            ("max_user_connections", "2", "connections"),
            ("wait_timeout", "10", "idle"),
            ("sync_binlog", "0", "replication"),
            ("wsrep_on", "ON", "galera"),
            // As a server answers that does not reveal it.
            ("threads_connected", "", "connections"),
            ("max_connections", "", "connections"),
            ("max_user_connections", "", "connections"),
            ("wait_timeout", "", "idle"),
            ("innodb_flush_log_at_trx_commit", "", "durability"),
        ] {
            assert_eq!(amiss(name, value), [(about, Level::Warning)], "{name}");
        }
    }
}
