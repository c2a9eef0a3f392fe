//! The factory for URLs.

use dlock_core::{BackendUrl, Connecting, Factory};

use crate::{Redis, RedisConfig};

/// The factory of Redis and Valkey with all schemes and options, for a
/// [`Registry`](dlock_core::Registry).
pub const REDIS: Factory =
    Factory::new("redis", RedisConfig::SCHEMES, RedisConfig::OPTIONS, connect);

fn connect(mut url: BackendUrl) -> Connecting {
    let config = RedisConfig::take(&mut url);
    Box::pin(async move { Redis::connect(config?).await })
}
