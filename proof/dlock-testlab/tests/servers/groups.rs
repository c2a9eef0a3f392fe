//! Groups of Redis servers.

use std::time::Duration;

use dlock_testlab::redis::{
    Options, RedisCluster, RedisMasters, RedisSentinel, RedisServer, Reply,
};

use tokio::time::sleep;

use crate::{is_alive, with_redis};

fn pids(servers: &[RedisServer]) -> Vec<u32> {
    servers.iter().filter_map(RedisServer::pid).collect()
}

#[test]
fn masters_know_nothing_of_each_other() {
    with_redis(async {
        let masters = RedisMasters::start(5, &Options::new()).await?;
        masters.servers()[3].command(&["SET", "a", "1"]).await?.ok()?;
        let counts = masters.keys("*").await?.iter().map(Vec::len).collect::<Vec<_>>();
        assert_eq!(counts, [0, 0, 0, 1, 0]);
        let ports: Vec<_> = masters.servers().iter().map(RedisServer::address).collect();
        assert_eq!(masters.url(), format!("redis+quorum://{}", ports.join(",")));

        let pids = pids(masters.servers());
        drop(masters);
        assert!(!pids.into_iter().any(is_alive));
        Ok(())
    });
}

#[test]
fn sentinels_fail_over_from_a_dead_master_and_back() {
    with_redis(async {
        let sentinel = RedisSentinel::start(&Options::new().with_password("secret")).await?;
        assert_eq!(sentinel.master().await?, sentinel.servers()[0].address());
        let dead = sentinel.kill_master().await?;
        let second = sentinel.until_failed_over(&dead.address()).await?;
        assert_ne!(second, dead.address());

        dead.restart().await?;
        sentinel.until_in_sync().await?;
        // The failover must lead to another master. On a busy machine, the sentinels may have
        // failed over from the second one by themselves.
        let third = sentinel.failover().await?;
        sentinel.until_master_is(&third).await?;

        let pids = [pids(sentinel.servers()), pids(sentinel.sentinel_servers())].concat();
        assert_eq!(pids.len(), 6);
        drop(sentinel);
        assert!(!pids.into_iter().any(is_alive));
        Ok(())
    });
}

/// The first attempt fails: the chosen replica does not become master within two seconds.
#[test]
fn sentinels_that_give_up_a_failover_are_asked_again() {
    with_redis(async {
        let sentinel = RedisSentinel::start(&Options::new()).await?;
        let master = sentinel.master().await?;
        let replicas = || sentinel.servers().iter().filter(|server| server.address() != master);
        replicas().try_for_each(RedisServer::pause)?;
        let resume = async {
            while !sentinel.gives_up_failovers() {
                sleep(Duration::from_millis(20)).await;
            }
            replicas().try_for_each(RedisServer::resume)
        };
        let (next, resumed) = tokio::join!(sentinel.failover(), resume);
        resumed?;
        assert_ne!(next?, master);
        Ok(())
    });
}

#[test]
fn a_paused_master_is_replaced_and_follows_once_it_resumes() {
    with_redis(async {
        let sentinel = RedisSentinel::start(&Options::new()).await?;
        let paused = sentinel.pause_master().await?;
        sentinel.until_failed_over(&paused.address()).await?;
        paused.resume()?;
        sentinel.until_in_sync().await
    });
}

#[test]
fn a_cluster_moves_slots_and_fails_over() {
    with_redis(async {
        let cluster = RedisCluster::start(&Options::new().with_password("secret")).await?;
        let slot = cluster.slot_of("a").await?;
        let from = cluster.master_of_slot(slot).await?;
        let to = cluster.nodes().iter().find(|node| node.port() != from.port()).unwrap();
        from.command(&["SET", "a", "1"]).await?.ok()?;

        cluster.begin_move(slot, from, to).await?;
        assert_eq!(from.command(&["GET", "a"]).await?.text()?, "1");
        assert_redirects(&from.command(&["GET", "{a}b"]).await?, "ASK", slot, to);
        cluster.move_keys(slot, from, to).await?;
        assert_redirects(&from.command(&["GET", "a"]).await?, "ASK", slot, to);
        assert_redirects(&to.command(&["GET", "a"]).await?, "MOVED", slot, from);
        cluster.end_move(slot, from, to).await?;
        assert_redirects(&from.command(&["GET", "a"]).await?, "MOVED", slot, to);
        assert_eq!(to.command(&["GET", "a"]).await?.text()?, "1");
        cluster.move_slot(slot, to, from).await?;
        assert_eq!(cluster.keys("*").await?, ["a"]);

        let replica = cluster.replica_of(from).await?;
        cluster.failover(replica).await?;
        assert_eq!(cluster.master_of_slot(slot).await?.port(), replica.port());
        cluster.until_well().await?;
        replica.kill();
        assert_eq!(cluster.until_failed_over(slot, replica).await?.port(), from.port());
        replica.restart().await?;
        cluster.until_well().await?;
        from.pause()?;
        cluster.failover_by_force(replica).await?;
        from.resume()?;
        cluster.until_well().await?;

        let pids = pids(cluster.nodes());
        assert_eq!(pids.len(), 6);
        drop(cluster);
        assert!(!pids.into_iter().any(is_alive));
        Ok(())
    });
}

fn assert_redirects(reply: &Reply, how: &str, slot: u16, to: &RedisServer) {
    assert_eq!(*reply, Reply::Error(format!("{how} {slot} {}", to.address())));
}
