//! Masters that know nothing of each other, for locks that a majority grants.

use futures_util::future::try_join_all;

use super::{Options, RedisServer};
use crate::Stop;

/// Masters that know nothing of each other. They die with this value.
#[derive(Debug)]
pub struct RedisMasters {
    servers: Vec<RedisServer>,
}

impl RedisMasters {
    /// Starts so many masters.
    ///
    /// # Errors
    /// [`Stop::missing`] when Redis is not installed.
    pub async fn start(count: usize, options: &Options) -> Result<Self, Stop> {
        let servers = try_join_all((0..count).map(|_| RedisServer::start(options))).await?;
        Ok(Self { servers })
    }

    /// The masters, always in the same order.
    pub fn servers(&self) -> &[RedisServer] {
        &self.servers
    }

    /// Where a client finds them: `redis+quorum://a,b,c`.
    pub fn url(&self) -> String {
        url("redis+quorum", &self.servers)
    }

    /// The keys that match on each master, in the order of the masters.
    ///
    /// # Errors
    /// When one of them does not answer.
    pub async fn keys(&self, pattern: &str) -> Result<Vec<Vec<String>>, Stop> {
        try_join_all(self.servers.iter().map(|server| server.keys(pattern))).await
    }
}

/// A URL with the addresses of all these servers.
pub(super) fn url(scheme: &str, servers: &[RedisServer]) -> String {
    let addresses: Vec<String> = servers.iter().map(RedisServer::address).collect();
    let user_info = servers.first().map(|server| server.options().user_info()).unwrap_or_default();
    format!("{scheme}://{user_info}{}", addresses.join(","))
}
