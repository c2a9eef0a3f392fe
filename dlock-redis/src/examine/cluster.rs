//! The findings about a cluster, from the answers of its nodes.

use std::collections::HashMap;

use dlock_core::Finding;

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
    for server in servers {
        if let Ok(Some(answer)) = query(link, server, &info).await
            && let Some(text) = reply::text(&answer)
        {
            return vec![judge(&reply::fields(&text), servers.len())];
        }
    }
    vec![Finding::warning(
        "cluster",
        "no node reports whether all slots are served",
        "give this user the right (ACL SETUSER name +cluster|info), or run CLUSTER INFO as another \
         user",
    )]
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
}
