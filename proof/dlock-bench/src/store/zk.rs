//! The counters of a ZooKeeper server.

use std::collections::HashMap;

use dlock_testlab::{Stop, zookeeper::ZooKeeperServer};

use crate::Failure;

/// The counters of a server at one time, from `mntr`.
#[derive(Clone, Debug)]
pub(crate) struct ZkCounters {
    values: HashMap<String, f64>,
    /// The number of requests for them.
    tries: f64,
}

/// The number of attempts to read the counters of a server that does not answer soon, as on a busy
/// machine.
const TRIES: usize = 20;

/// The difference of two looks.
#[derive(Debug)]
pub(crate) struct ZkCounted {
    before: ZkCounters,
    after: ZkCounters,
}

impl ZkCounters {
    /// Reads the counters, over a connection that is used for nothing else.
    pub(crate) async fn look(server: &ZooKeeperServer) -> Result<Self, Failure> {
        let mut tries = 1.0;
        for _ in 1..TRIES {
            if let Ok(answer) = server.four_letter_word("mntr").await {
                return Ok(Self::parse(&answer, tries));
            }
            tries += 1.0;
        }
        let answer = server.four_letter_word("mntr").await.map_err(no_server)?;
        Ok(Self::parse(&answer, tries))
    }

    /// Returns the counts until another look.
    pub(crate) fn until(self, after: Self) -> ZkCounted {
        ZkCounted { before: self, after }
    }

    /// Returns the number of nodes of all kinds, including the server's own.
    pub(crate) fn nodes(&self) -> f64 {
        self.value("zk_znode_count")
    }

    /// Returns the bytes of their paths and data.
    pub(crate) fn bytes(&self) -> f64 {
        self.value("zk_approximate_data_size")
    }

    fn value(&self, name: &str) -> f64 {
        self.values.get(name).copied().unwrap_or(f64::NAN)
    }

    fn parse(mntr: &str, tries: f64) -> Self {
        let values = mntr.lines().filter_map(|line| line.split_once('\t'));
        let values = values.filter_map(|(name, value)| Some((name, value.trim().parse().ok()?)));
        Self { values: values.map(|(name, value)| (name.to_owned(), value)).collect(), tries }
    }
}

impl ZkCounted {
    /// Returns the number of commands of clients, including their pings.
    pub(crate) fn commands(&self) -> f64 {
        // The server counted the second request before it answered it.
        self.of("zk_packets_received") - self.after.tries
    }

    fn of(&self, name: &str) -> f64 {
        self.after.value(name) - self.before.value(name)
    }
}

/// Returns the server's version.
pub(crate) async fn version(server: &ZooKeeperServer) -> Result<String, Failure> {
    let answer = server.four_letter_word("srvr").await.map_err(no_server)?;
    let line = answer.lines().next().unwrap_or_default();
    let version = line.rsplit(": ").next().unwrap_or_default();
    let end = version.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(version.len());
    Ok(version[..end].to_owned())
}

/// Returns the failure of a server that does not answer.
fn no_server(stop: Stop) -> Failure {
    format!("no server: {stop:?}").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &str = "zk_version\t3.8.0-x, built on 2024-12-29\nzk_packets_received\t10\n";
    const AFTER: &str = "zk_packets_received\t14\nzk_znode_count\t7\n";

    #[test]
    fn counts_what_came_between_without_the_looks() {
        let counted = ZkCounters::parse(BEFORE, 1.0).until(ZkCounters::parse(AFTER, 1.0));
        assert_eq!(counted.commands(), 3.0);
        assert_eq!(counted.after.nodes(), 7.0);
        // A count that the server does not report is not a number, and meets no target.
        assert!(counted.of("zk_znode_count").is_nan());
    }
}
