//! Private Redis servers, one module for each kind of deployment that a backend supports.
//!
//! They need `redis-server` on the path, or `DLOCK_TEST_REDIS_SERVER` with the path of one (also of
//! a `valkey-server`).
//!
//! ```no_run
//! # async fn example() -> Result<(), dlock_testlab::Stop> {
//! use dlock_testlab::redis::{Options, RedisServer};
//!
//! let server = RedisServer::start(&Options::new()).await?;
//! server.command(&["SET", "a", "1"]).await?.ok()?;
//! assert_eq!(server.keys("*").await?, ["a"]);
//! # Ok(())
//! # }
//! ```

mod cluster;
mod resp;
mod sentinel;
mod server;

pub use cluster::RedisCluster;
pub use resp::{Reply, Resp};
pub use sentinel::RedisSentinel;
pub use server::{Options, Persistence, RedisMasters, RedisServer};
