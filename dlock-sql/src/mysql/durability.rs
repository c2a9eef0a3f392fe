//! The settings that decide whether answered writes survive a crash of the server.

use std::collections::HashMap;

use dlock_core::Finding;

use super::{conn::MysqlConn, queries, statement::text};
use crate::engine::Fault;

/// The methods that write to the disk. The empty one is the default of old servers.
const FLUSHED: [&str; 8] = [
    "",
    "fsync",
    "o_dsync",
    "o_direct",
    "all_o_direct",
    "normal",
    "unbuffered",
    "async_unbuffered",
];

/// The server's settings by name, as far as they matter. All users may read them, so a missing
/// setting is one that this kind of server does not have.
pub(super) struct ServerSettings(pub(super) HashMap<String, String>);

impl ServerSettings {
    pub(super) async fn read(conn: &mut MysqlConn) -> Result<Self, Fault> {
        let mut settings = HashMap::new();
        for statement in [queries::SETTINGS, queries::STATUS] {
            for row in &conn.rows(statement).await? {
                settings.insert(text(row, 0)?.to_lowercase(), text(row, 1)?);
            }
        }
        Ok(Self(settings))
    }

    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// Returns the value of a setting, empty if it is missing.
    pub(super) fn value(&self, name: &str) -> &str {
        self.get(name).unwrap_or_default()
    }

    pub(super) fn is_on(&self, name: &str) -> bool {
        matches!(self.get(name), Some("ON" | "1"))
    }

    /// Returns whether commits survive a crash of the server and of its machine.
    pub(super) fn is_durable(&self) -> bool {
        self.weaknesses().is_empty()
    }

    /// Returns the findings about settings with which a crash may lose or damage answered writes.
    pub(super) fn weaknesses(&self) -> Vec<Finding> {
        let mut found = Vec::new();
        let flush = self.value("innodb_flush_log_at_trx_commit");
        if flush != "1" {
            found.push(Finding::warning(
                "durability",
                format!(
                    "a crash may lose the last grants (innodb_flush_log_at_trx_commit {flush:.10})"
                ),
                "run SET GLOBAL innodb_flush_log_at_trx_commit = 1, and write it into my.cnf",
            ));
        }
        let method = self.value("innodb_flush_method");
        if !FLUSHED.contains(&&*method.to_lowercase()) {
            found.push(Finding::warning(
                "durability",
                format!(
                    "a crash of the machine may lose anything (innodb_flush_method {method:.40})"
                ),
                "write innodb_flush_method = O_DIRECT or fsync into my.cnf",
            ));
        }
        let double = self.get("innodb_doublewrite").unwrap_or("ON");
        if !matches!(double, "ON" | "1" | "DETECT_AND_RECOVER") {
            found.push(Finding::warning(
                "durability",
                format!(
                    "a crash of the machine may damage the tables (innodb_doublewrite {double:.40})"
                ),
                "write innodb_doublewrite = ON into my.cnf",
            ));
        }
        if self.get("innodb_redo_log_enabled") == Some("OFF") {
            found.push(Finding::warning(
                "durability",
                "a crash may lose anything (the redo log is disabled)",
                "run ALTER INSTANCE ENABLE INNODB REDO_LOG",
            ));
        }
        let sync = self.value("sync_binlog");
        if self.is_on("log_bin") && sync != "1" {
            found.push(Finding::warning(
                "replication",
                format!(
                    "after a crash of the machine the server rolls back the commits that its \
                     binary log lacks, so the last grants may be lost (sync_binlog {sync:.20})"
                ),
                "run SET GLOBAL sync_binlog = 1, and write it into my.cnf",
            ));
        }
        if self.is_on("wsrep_on") {
            found.push(Finding::warning(
                "galera",
                "the server is a node of a Galera cluster (wsrep_on), on which dlock is not tested",
                "have all clients use one node, through a proxy with a single writer: nodes that \
                 are written to at the same time refuse some of the writes with deadlocks",
            ));
        }
        if !self.value("group_replication_group_name").is_empty() {
            found.push(Finding::warning(
                "group replication",
                "the server is a member of a group (group_replication_group_name), on which dlock is \
                 not tested",
                "have all clients use the primary of the group",
            ));
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEPT: [(&str, &str); 8] = [
        ("innodb_flush_log_at_trx_commit", "1"),
        ("innodb_flush_method", "O_DIRECT"),
        ("innodb_doublewrite", "ON"),
        ("innodb_redo_log_enabled", "ON"),
        ("log_bin", "ON"),
        ("sync_binlog", "1"),
        ("wsrep_on", "OFF"),
        ("group_replication_group_name", ""),
    ];

    fn settings(pairs: &[(&str, &str)]) -> ServerSettings {
        let owned = |&(name, value): &(&str, &str)| (name.to_owned(), value.to_owned());
        ServerSettings(pairs.iter().map(owned).collect())
    }

    #[test]
    fn a_promise_needs_each_setting_that_it_depends_on() {
        assert!(settings(&KEPT).is_durable());
        // A server without a setting does not do what it controls. All servers have the first.
        assert!(settings(&KEPT[..1]).is_durable());
        assert!(!settings(&KEPT[1..]).is_durable());
        for (name, value, about, remedy) in [
            ("innodb_flush_log_at_trx_commit", "2", "durability", "trx_commit = 1"),
            ("innodb_flush_log_at_trx_commit", "0", "durability", "trx_commit = 1"),
            ("innodb_flush_method", "nosync", "durability", "innodb_flush_method"),
            ("innodb_flush_method", "O_DIRECT_NO_FSYNC", "durability", "innodb_flush_method"),
            ("innodb_doublewrite", "OFF", "durability", "innodb_doublewrite"),
            ("innodb_doublewrite", "DETECT_ONLY", "durability", "innodb_doublewrite"),
            ("innodb_doublewrite", "fast", "durability", "innodb_doublewrite"),
            ("innodb_redo_log_enabled", "OFF", "durability", "REDO_LOG"),
            ("sync_binlog", "0", "replication", "sync_binlog = 1"),
            ("sync_binlog", "100", "replication", "sync_binlog = 1"),
            ("wsrep_on", "ON", "galera", "one node"),
            ("group_replication_group_name", "a-b", "group replication", "the primary"),
        ] {
            let mut other = settings(&KEPT);
            other.0.insert(name.to_owned(), value.to_owned());
            let found = other.weaknesses();
            assert!(!other.is_durable(), "{name} {value}");
            assert_eq!((found.len(), found[0].about), (1, about), "{name} {value}");
            assert!(found[0].remedy.as_deref().unwrap_or_default().contains(remedy), "{found:?}");
        }
        // Without a binary log its settings do not matter.
        let mut without = settings(&KEPT);
        without.0.extend(
            [("log_bin", "OFF"), ("sync_binlog", "0")]
                .map(|(name, value)| (name.to_owned(), value.to_owned())),
        );
        assert!(without.is_durable());
    }
}
