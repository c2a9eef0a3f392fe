//! Independent masters, for locks that a majority grants.

use futures_util::future::try_join_all;

use super::{Options, RedisServer};
use crate::Stop;

/// Independent masters. They end when this value is dropped.
#[derive(Debug)]
pub struct RedisMasters {
    servers: Vec<RedisServer>,
}

impl RedisMasters {
    /// Starts `count` masters.
    ///
    /// # Errors
    /// [`Stop::missing`] if Redis is not installed.
    pub async fn start(count: usize, options: &Options) -> Result<Self, Stop> {
        let servers = try_join_all((0..count).map(|_| RedisServer::start(options))).await?;
        Ok(Self { servers })
    }

    /// Returns the masters, always in the same order.
    pub fn servers(&self) -> &[RedisServer] {
        &self.servers
    }

    /// Returns the URL for clients: `redis+quorum://a,b,c`.
    pub fn url(&self) -> String {
        url("redis+quorum", &self.servers)
    }

    /// Returns the keys that match on each master, in the order of the masters.
    ///
    /// # Errors
    /// If one of them does not answer.
    pub async fn keys(&self, pattern: &str) -> Result<Vec<Vec<String>>, Stop> {
        try_join_all(self.servers.iter().map(|server| server.keys(pattern))).await
    }
}

/// Returns a URL with the addresses of all these servers.
pub(super) fn url(scheme: &str, servers: &[RedisServer]) -> String {
    let addresses: Vec<String> = servers.iter().map(RedisServer::address).collect();
    let user_info = servers.first().map(|server| server.options().user_info()).unwrap_or_default();
    format!("{scheme}://{user_info}{}", addresses.join(","))
}
