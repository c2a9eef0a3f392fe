//! Counts of open connections, and the end of paused servers.

use dlock_testlab::{
    Server, Stop, Verdict, is_stopped,
    mariadb::{self, MariadbServer},
    postgres::{self, PgBouncer, PostgresServer},
    redis::{Options, RedisServer, Resp},
    zookeeper::{self, ZooKeeperServer},
};

use crate::{is_alive, watcher::Watcher, with, with_redis};

/// Waits until there is this number of connections: servers notice a closed one later.
async fn until_open(
    count: usize,
    look: impl AsyncFn() -> Result<usize, Stop> + Send + Sync,
) -> Verdict {
    let until = async {
        loop {
            if look().await? == count {
                return Ok::<_, Stop>(());
            }
        }
    };
    let within = tokio::time::timeout(std::time::Duration::from_secs(60), until).await;
    within.unwrap_or_else(|_| Err(Stop::failed(format!("there are never {count}"))))
}

/// The process is paused at once, continues, and has ended after it was killed.
fn assert_pauses<O: Send + Sync + 'static>(server: &Server<O>) -> Verdict {
    let pid = server.pid().expect("it runs");
    for _ in 0..20 {
        assert!(!is_stopped(pid));
        server.pause()?;
        assert!(is_stopped(pid));
        server.resume()?;
    }
    server.pause()?;
    server.kill();
    assert!(!is_alive(pid) && !is_stopped(pid) && server.pause().is_err());
    Ok(())
}

#[test]
fn redis_counts_and_stops() {
    with_redis(async {
        let server = RedisServer::start(&Options::new()).await?;
        let replica = RedisServer::start(&Options::new().replica_of(&server.address())).await?;
        replica.until_in_sync_with(&server).await?;
        until_open(0, async || server.connections().await).await?;
        let mut subscriber = Resp::connect(&server.address()).await?;
        subscriber.command(&["SUBSCRIBE", "a"]).await?.ok()?;
        let mut other = Resp::connect(&server.address()).await?;
        other.command(&["PING"]).await?.ok()?;
        until_open(2, async || server.connections().await).await?;
        drop(subscriber);
        until_open(1, async || server.connections().await).await?;
        assert_pauses(&server)
    });
}

#[test]
fn postgres_counts_and_stops() {
    with("postgres", async {
        let server = PostgresServer::start(&postgres::Options::new()).await?;
        until_open(0, async || server.connections().await).await?;
        tokio::select! {
            slept = server.query("select pg_sleep(1000)") => panic!("{slept:?}"),
            open = until_open(1, async || server.connections().await) => open?,
        }
        let bouncer = PgBouncer::start(&server, &[]).await?;
        assert_pauses(&bouncer)?;
        let children = "select pid from pg_stat_activity where pid <> pg_backend_pid()";
        let children = server.query(children).await?.concat();
        server.pause()?;
        assert!(!children.is_empty());
        for child in children {
            assert!(is_stopped(child.parse()?), "{child}");
        }
        server.resume()?;
        assert_pauses(&server)
    });
}

#[test]
fn mariadb_counts_and_stops() {
    with("mysql", async {
        let server = MariadbServer::start(&mariadb::Options::new()).await?;
        until_open(0, async || server.connections().await).await?;
        tokio::select! {
            slept = server.query("select sleep(1000)") => panic!("{slept:?}"),
            open = until_open(1, async || server.connections().await) => open?,
        }
        assert_pauses(&server)
    });
}

#[test]
fn zookeeper_counts_and_stops() {
    with("zk", async {
        let server = ZooKeeperServer::start(&zookeeper::Options::new()).await?;
        until_open(0, async || server.connections().await).await?;
        let one = Watcher::connect(&server.address()).await?;
        let _two = Watcher::connect(&server.address()).await?;
        until_open(2, async || server.connections().await).await?;
        drop(one);
        until_open(1, async || server.connections().await).await?;
        assert_pauses(&server)
    });
}
