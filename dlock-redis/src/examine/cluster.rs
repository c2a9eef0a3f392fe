//! The findings about a cluster, from the answers of its nodes.

use std::collections::HashMap;

use dlock_core::Finding;
use redis::RedisError;

use super::query;
use crate::{
    link::{Link, Server},
    reply,
};

/// The number of slots of every cluster.
const SLOTS: &str = "16384";

/// Sends the request to one node after another until one answers.
pub(super) async fn examine(link: &Link, servers: &[Server]) -> Vec<Finding> {
    let mut info = redis::pipe();
    info.cmd("CLUSTER").arg("INFO");
    let mut failed = None;
    for server in servers {
        match query(link, server, &info).await {
            Ok(answer) => {
                if let Some(text) = answer.as_ref().and_then(reply::text) {
                    return vec![judge(&reply::fields(&text), servers.len())];
                }
            }
            Err(error) => failed = Some(error),
        }
    }
    vec![unseen(failed.as_ref())]
}

/// The finding if no node has answered. `failed` is an error other than a missing right.
fn unseen(failed: Option<&RedisError>) -> Finding {
    const FOUND: &str = "no node reports whether all slots are served";
    match failed {
        Some(error) => Finding::warning(
            "cluster",
            format!("{FOUND} ({:.120})", error.to_string()),
            "check that the nodes run and answer in time, and run the doctor again",
        ),
        None => Finding::warning(
            "cluster",
            FOUND,
            "give this user the right (ACL SETUSER name +cluster|info), or run CLUSTER INFO as \
             another user",
        ),
    }
}

fn judge(info: &HashMap<String, String>, masters: usize) -> Finding {
    let field = |name: &str| info.get(name).map_or("", String::as_str);
    let (state, slots) = (field("cluster_state"), field("cluster_slots_ok"));
    if state != "ok" || slots != SLOTS {
        return Finding::wrong(
            "cluster",
            format!("its state is {state:.20}, and {slots:.20} of {SLOTS} slots are served"),
            "find the missing nodes with CLUSTER NODES, and run redis-cli --cluster fix",
        );
    }
    if masters < 3 {
        return Finding::warning(
            "cluster",
            format!("the cluster has {masters} masters"),
            "run three masters or more: fewer can't agree on a failover",
        );
    }
    Finding::fine("cluster", format!("all slots are served, by {masters} masters"))
}

#[cfg(test)]
mod tests {
    use dlock_core::Level;

    use super::*;

    #[test]
    fn a_cluster_without_all_slots_is_wrong() {
        let of = |text: &str, masters| judge(&reply::fields(text), masters).level;
        assert_eq!(of("cluster_state:ok\r\ncluster_slots_ok:16384\r\n", 3), Level::Fine);
        assert_eq!(of("cluster_state:ok\r\ncluster_slots_ok:16384\r\n", 1), Level::Warning);
        assert_eq!(of("cluster_state:fail\r\ncluster_slots_ok:16384\r\n", 3), Level::Wrong);
        assert_eq!(of("cluster_state:ok\r\ncluster_slots_ok:5000\r\n", 3), Level::Wrong);
        assert_eq!(of("", 3), Level::Wrong);
    }

    #[test]
    fn only_nodes_that_refuse_for_want_of_a_right_ask_for_it() {
        let failed = RedisError::from((redis::ErrorKind::Io, "no answer in time"));
        for (failed, asks) in [(Some(&failed), false), (None, true)] {
            let finding = unseen(failed);
            assert_eq!(finding.level, Level::Warning);
            assert_eq!(finding.remedy.unwrap().contains("+cluster|info"), asks);
        }
    }
}
