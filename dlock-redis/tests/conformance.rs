//! The conformance suite on Redis, in its four settings: one server, Sentinel, Cluster, and a
//! quorum of masters.

use async_trait::async_trait;
use dlock_core::{DynBackend, Error, LockName};
use dlock_redis::{Redis, RedisConfig};
use dlock_testkit::{Opened, Store};
use dlock_testlab::{
    Stop,
    redis::{Options, RedisCluster, RedisMasters, RedisSentinel, RedisServer},
};

/// One way to run Redis.
enum Setting {
    Single,
    Sentinel,
    Cluster,
    Quorum,
}

/// Private servers, which end when this value is dropped.
enum Servers {
    Single(Box<RedisServer>),
    Sentinel(RedisSentinel),
    Cluster(RedisCluster),
    Quorum(RedisMasters),
}

#[async_trait]
impl Store for Setting {
    fn name(&self) -> &str {
        "redis"
    }

    fn setting(&self) -> &str {
        match self {
            Self::Single => "single",
            Self::Sentinel => "sentinel",
            Self::Cluster => "cluster",
            Self::Quorum => "quorum",
        }
    }

    async fn open(&self) -> Result<Box<dyn Opened>, Stop> {
        let options = Options::new();
        Ok(Box::new(match self {
            Self::Single => Servers::Single(Box::new(RedisServer::start(&options).await?)),
            Self::Sentinel => Servers::Sentinel(RedisSentinel::start(&options).await?),
            Self::Cluster => Servers::Cluster(RedisCluster::start(&options).await?),
            Self::Quorum => Servers::Quorum(RedisMasters::start(5, &options).await?),
        }))
    }

    async fn connect_to(&self, address: &str) -> Result<DynBackend, Error> {
        Redis::connect(RedisConfig::from_url(address)?).await
    }
}

#[async_trait]
impl Opened for Servers {
    async fn connect(&self) -> Result<DynBackend, Error> {
        Redis::connect(RedisConfig::from_url(&self.url())?).await
    }

    fn address(&self) -> Option<String> {
        Some(self.url())
    }

    async fn leftovers(&self, name: &LockName) -> Result<Vec<String>, Stop> {
        let mut left = Vec::new();
        for server in self.masters().await? {
            for (key, kind) in keys_of(server, name).await? {
                left.extend(alive(server, &key, &kind).await?);
            }
        }
        Ok(left)
    }

    async fn forget(&self, name: &LockName) -> Result<bool, Stop> {
        for server in self.masters().await? {
            for (key, _) in keys_of(server, name).await? {
                // A replica of a node of a cluster refuses the command.
                server.command(&["DEL", &key]).await?;
            }
        }
        Ok(true)
    }
}

impl Servers {
    fn url(&self) -> String {
        match self {
            Self::Single(server) => server.url(),
            Self::Sentinel(servers) => servers.url(),
            Self::Cluster(servers) => servers.url(),
            // The servers have just started, so no lock can have been lost.
            Self::Quorum(servers) => format!("{}?dlock.restart_guard=0s", servers.url()),
        }
    }

    async fn masters(&self) -> Result<Vec<&RedisServer>, Stop> {
        Ok(match self {
            Self::Single(server) => vec![server],
            Self::Sentinel(servers) => vec![servers.master_server().await?],
            Self::Cluster(servers) => servers.nodes().iter().collect(),
            Self::Quorum(servers) => servers.servers().iter().collect(),
        })
    }
}

/// The keys of a name on this server, each with the letter of its kind.
async fn keys_of(server: &RedisServer, name: &LockName) -> Result<Vec<(String, String)>, Stop> {
    let keys = server.keys("dlock:{*").await?.into_iter();
    let of_name = keys.filter_map(|key| {
        let (kind, of) = key.split_once('}')?.1.split_once(':')?;
        (of == name.as_str()).then(|| (key.clone(), kind.to_owned()))
    });
    Ok(of_name.collect())
}

/// The claims in a key that are alive. Records of waiters and readers that died stay until a request for
/// the lock arrives.
async fn alive(server: &RedisServer, key: &str, kind: &str) -> Result<Vec<String>, Stop> {
    let time = server.command(&["TIME"]).await?.texts()?;
    let now = time[0].parse::<u64>()? * 1_000_000 + time[1].parse::<u64>()?;
    let listed = match kind {
        // The claims of the queue have records among the waiters, too.
        "q" => return Ok(Vec::new()),
        "w" => server.command(&["HGETALL", key]).await,
        "r" => server.command(&["ZRANGEBYSCORE", key, &now.to_string(), "+inf"]).await,
        _ => return Ok(vec![key.to_owned()]),
    };
    let Ok(claims) = listed?.texts() else {
        // A replica of a node of a cluster redirects the command.
        return Ok(Vec::new());
    };
    if kind == "r" {
        return Ok(claims);
    }
    let mut left = Vec::new();
    for pair in claims.chunks(2) {
        let until = pair[1].split(':').nth(4).and_then(|time| time.parse::<u64>().ok());
        if until.is_some_and(|until| until > now) {
            left.push(format!("{key}: {} {}", pair[0], pair[1]));
        }
    }
    Ok(left)
}

fn main() {
    dlock_testkit::run_each(vec![
        Box::new(Setting::Single),
        Box::new(Setting::Sentinel),
        Box::new(Setting::Cluster),
        Box::new(Setting::Quorum),
    ])
}
