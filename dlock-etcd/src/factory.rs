//! The factory for URLs.

use dlock_core::{BackendUrl, Connecting, Factory};

use crate::{Etcd, EtcdConfig};

/// The factory of etcd with all schemes and options, for a [`Registry`](dlock_core::Registry).
pub const FACTORY: Factory =
    Factory::new("etcd", EtcdConfig::SCHEMES, EtcdConfig::OPTIONS, connect);

fn connect(mut url: BackendUrl) -> Connecting {
    let config = EtcdConfig::take(&mut url);
    Box::pin(async move { Etcd::connect(config?).await })
}
