//! The factory for URLs.

use dlock_core::{BackendUrl, Connecting, Factory};

use crate::{ZkConfig, ZooKeeper};

/// The factory of ZooKeeper with all schemes and options, for a [`Registry`](dlock_core::Registry).
pub const ZK: Factory = Factory::new("zk", ZkConfig::SCHEMES, ZkConfig::OPTIONS, connect);

fn connect(mut url: BackendUrl) -> Connecting {
    let config = ZkConfig::take(&mut url);
    Box::pin(async move { ZooKeeper::connect(config?).await })
}
