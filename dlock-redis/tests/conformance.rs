//! The conformance suite on Redis.

use async_trait::async_trait;
use dlock_core::{DynBackend, Error, LockName};
use dlock_redis::{Redis, RedisConfig};
use dlock_testkit::{
    Opened, Stop, Store,
    servers::redis::{Options, RedisServer},
};

struct Single;

struct Open(RedisServer);

async fn connect(url: &str) -> Result<DynBackend, Error> {
    Redis::connect(RedisConfig::from_url(url)?).await
}

#[async_trait]
impl Store for Single {
    fn name(&self) -> &str {
        "redis"
    }

    async fn open(&self) -> Result<Box<dyn Opened>, Stop> {
        Ok(Box::new(Open(RedisServer::start(&Options::new()).await?)))
    }

    async fn connect_to(&self, address: &str) -> Result<DynBackend, Error> {
        connect(address).await
    }
}

#[async_trait]
impl Opened for Open {
    async fn connect(&self) -> Result<DynBackend, Error> {
        connect(&self.0.url()).await
    }

    fn address(&self) -> Option<String> {
        Some(self.0.url())
    }

    async fn leftovers(&self, name: &LockName) -> Result<Vec<String>, Stop> {
        let mut left = Vec::new();
        for key in self.0.keys("dlock:{*").await? {
            if key.split_once("}:").is_some_and(|(_, rest)| rest == name.as_str()) {
                left.push(key);
            }
        }
        Ok(left)
    }
}

fn main() {
    dlock_testkit::run(Single)
}
