//! From a URL to a backend.

use dlock_core::{BackendUrl, Connecting, Factory};

use crate::{ZkConfig, ZooKeeper};

/// All schemes and options of ZooKeeper, for a [`Registry`](dlock_core::Registry).
pub const ZK: Factory = Factory::new("zk", ZkConfig::SCHEMES, ZkConfig::OPTIONS, connect);

fn connect(mut url: BackendUrl) -> Connecting {
    let config = ZkConfig::take(&mut url);
    Box::pin(async move { ZooKeeper::connect(config?).await })
}
