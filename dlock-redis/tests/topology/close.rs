//! A client that is dropped leaves nothing behind.

use dlock_core::{ClaimId, Mode, Permits};
use dlock_testlab::{
    Stop, Verdict,
    redis::{Options, RedisCluster, RedisMasters, RedisSentinel, RedisServer},
};
use tokio::time::sleep;

use crate::support::{ask, clients, connect, millis, queue, secs, take, until, with_redis};

/// Uses all features of a client, drops it, and waits until no server has a connection of it.
async fn uses_and_closes(url: &str, servers: &[&RedisServer]) -> Verdict {
    let backend = connect(url).await?;
    let name = ClaimId::random().to_string();
    let (held, waits) = (ask(&name, secs(60)), ask(&name, secs(60)));
    take(&backend, &held).await?;
    if backend.guarantees().permits >= Permits::Counted {
        queue(&backend, &waits).await?;
    }
    let shared = ask("shared", secs(60)).with_mode(Mode::Shared);
    take(&backend, &shared).await?;
    // The watches have run once.
    sleep(millis(1200)).await;
    assert!(open(servers).await? > 0);
    drop(backend);
    until("all connections close", async || Ok(open(servers).await? == 0)).await
}

async fn open(servers: &[&RedisServer]) -> Result<usize, Stop> {
    let mut open = 0;
    for server in servers {
        open += clients(server).await?.len();
    }
    Ok(open)
}

pub(crate) fn a_client_that_is_dropped_closes_all_connections() {
    with_redis(async {
        let options = Options::new();
        let single = RedisServer::start(&options).await?;
        uses_and_closes(&single.url(), &[&single]).await?;

        let masters = RedisMasters::start(3, &options).await?;
        let url = format!("{}?dlock.restart_guard=0s", masters.url());
        uses_and_closes(&url, &masters.servers().iter().collect::<Vec<_>>()).await?;

        let sentinel = RedisSentinel::start(&options).await?;
        let servers = sentinel.servers().iter().chain(sentinel.sentinel_servers());
        let servers: Vec<_> = servers.collect();
        for query in ["", "?dlock.durability=1"] {
            uses_and_closes(&format!("{}{query}", sentinel.url()), &servers).await?;
        }

        let cluster = RedisCluster::start(&options).await?;
        let nodes: Vec<_> = cluster.nodes().iter().collect();
        uses_and_closes(&cluster.url(), &nodes).await
    });
}

/// The same for a client that never connected, and for one whose servers have ended.
pub(crate) fn a_connecting_client_stops_when_it_is_dropped() {
    with_redis(async {
        let server = RedisServer::start(&Options::new()).await?;
        let backend = connect(&server.url()).await?;
        server.kill();
        sleep(millis(300)).await;
        drop(backend);
        server.restart().await?;
        // The longest pause between two tries.
        sleep(millis(1500)).await;
        // A connection that was being opened may still be closing.
        until("no client is left", async || Ok(clients(&server).await?.is_empty())).await
    });
}
