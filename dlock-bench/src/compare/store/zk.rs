//! What the server has counted.

use std::collections::HashMap;

use dlock_testlab::{Stop, zookeeper::ZooKeeperServer};

use crate::Failure;

/// Counters of a server at one time: what `mntr` says.
#[derive(Clone, Debug)]
pub(crate) struct ZkCounters {
    values: HashMap<String, f64>,
    /// How often it was asked for.
    tries: f64,
}

/// How often a server is asked that does not answer soon, as on a busy machine.
const TRIES: usize = 20;

/// What was counted between two looks.
#[derive(Debug)]
pub(crate) struct ZkCounted {
    before: ZkCounters,
    after: ZkCounters,
}

impl ZkCounters {
    /// Looks, over a connection that is used for nothing else.
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

    /// What was counted until another look.
    pub(crate) fn until(self, after: Self) -> ZkCounted {
        ZkCounted { before: self, after }
    }

    /// Nodes of all kinds, the server's own too.
    pub(crate) fn nodes(&self) -> f64 {
        self.value("zk_znode_count")
    }

    /// The bytes of their paths and data.
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
    /// Commands that clients sent, their pings too.
    pub(crate) fn commands(&self) -> f64 {
        // The second look was counted before it was answered.
        self.of("zk_packets_received") - self.after.tries
    }

    fn of(&self, name: &str) -> f64 {
        self.after.value(name) - self.before.value(name)
    }
}

/// The server's version.
pub(crate) async fn version(server: &ZooKeeperServer) -> Result<String, Failure> {
    let answer = server.four_letter_word("srvr").await.map_err(no_server)?;
    let line = answer.lines().next().unwrap_or_default();
    let version = line.rsplit(": ").next().unwrap_or_default();
    let end = version.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(version.len());
    Ok(version[..end].to_owned())
}

/// Why it does not answer.
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
        // What a server does not count is no number, which meets no target.
        assert!(counted.of("zk_znode_count").is_nan());
    }
}
