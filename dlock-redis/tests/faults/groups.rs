//! Faults of servers that replace each other.

use std::time::Duration;

use dlock_soak::{Load, Storm};
use dlock_testlab::{
    Verdict,
    redis::{Options, RedisCluster, RedisMasters, RedisSentinel, RedisServer},
};
use tokio::time::sleep;

use crate::{cleanup, storm::with_options};

/// A replica knows of each grant before its holder does, and takes over.
pub(crate) async fn one_sentinel_fails_over() -> Verdict {
    let servers = RedisSentinel::start(&Options::new()).await?;
    // Sentinels that find the master down at the same time may fail over twice in a row, and the
    // second time to a replica of the first master, which knows nothing of the second.
    for follower in &servers.sentinel_servers()[1..] {
        let never = ["SENTINEL", "SET", servers.master_name(), "quorum", "4"];
        follower.command(&never).await?.ok()?;
    }
    let url = with_options(&servers.url(), "dlock.durability=1");
    let load = Load::new("sentinel").start(&url).await?;
    let mut storm = Storm::begin("sentinel");
    while storm.next(&load, 800).await {
        fail_over(&servers).await?;
    }
    let report = load.finish().await?;
    storm.says(&report)?.check()?;
    cleanup::nothing(&[servers.master_server().await?]).await
}

/// Without restrictions. Then a lock may have two holders; tokens stay in order nevertheless.
pub(crate) async fn any_replica_takes_over() -> Verdict {
    let servers = RedisSentinel::start(&Options::new()).await?;
    let url = with_options(&servers.url(), "dlock.durability=1");
    let load = Load::new("sentinels").start(&url).await?;
    let mut storm = Storm::begin("sentinels");
    while storm.next(&load, 800).await {
        fail_over(&servers).await?;
    }
    servers.until_in_sync().await?;
    let report = load.finish().await?;
    println!("sentinels: {} names with overlaps", report.overlaps().len());
    storm.says(&report)?.check_tokens()?;
    cleanup::nothing(&[servers.master_server().await?]).await
}

async fn fail_over(servers: &RedisSentinel) -> Verdict {
    let killed = servers.kill_master().await?;
    servers.until_failed_over(&killed.address()).await?;
    // A master that comes back before the other replica has left it has one that agrees with it.
    servers.until_in_sync().await?;
    killed.restart().await?;
    servers.until_in_sync().await
}

pub(crate) async fn a_replica_takes_over() -> Verdict {
    let cluster = RedisCluster::start(&Options::new()).await?;
    let url = with_options(&cluster.url(), "dlock.durability=1");
    let load = Load::new("force").start(&url).await?;
    let mut storm = Storm::begin("force");
    while storm.next(&load, 600).await {
        let slot = some_slot(&cluster).await?;
        let master = cluster.master_of_slot(slot).await?;
        let replica = cluster.replica_of(master).await?;
        cluster.failover_by_force(replica).await?;
        cluster.until_well().await?;
    }
    let report = load.finish().await?;
    storm.says(&report)?.check()?;
    cleanup::nothing(&cluster.nodes().iter().collect::<Vec<_>>()).await
}

pub(crate) async fn slots_move() -> Verdict {
    let cluster = RedisCluster::start(&Options::new()).await?;
    let load = Load::new("slots").start(&with_options(&cluster.url(), "")).await?;
    let mut storm = Storm::begin("slots");
    while storm.next(&load, 300).await {
        let slot = some_slot(&cluster).await?;
        let from = cluster.master_of_slot(slot).await?;
        let others: Vec<&RedisServer> =
            cluster.nodes()[..3].iter().filter(|node| node.port() != from.port()).collect();
        let to = others[rand::random_range(0..others.len())];
        cluster.begin_move(slot, from, to).await?;
        sleep(Duration::from_millis(rand::random_range(0..40))).await;
        cluster.move_keys(slot, from, to).await?;
        sleep(Duration::from_millis(rand::random_range(0..40))).await;
        cluster.end_move(slot, from, to).await?;
    }
    let report = load.finish().await?;
    storm.says(&report)?.check()?;
    cleanup::nothing(&cluster.nodes().iter().collect::<Vec<_>>()).await
}

/// Any two of five may be unreachable, and come back without their data.
pub(crate) async fn two_of_five_are_unreachable() -> Verdict {
    let masters = RedisMasters::start(5, &Options::new()).await?;
    let load = Load::new("quorum");
    let guard = format!("dlock.restart_guard={}ms", load.longest_lease().as_millis());
    let load = load.start(&with_options(&masters.url(), &guard)).await?;
    let mut storm = Storm::begin("quorum");
    while storm.next(&load, 400).await {
        let first = rand::random_range(0..5);
        let second = (first + rand::random_range(1..5)) % 5;
        let mut killed = false;
        let pair = [&masters.servers()[first], &masters.servers()[second]];
        for master in pair {
            if rand::random() {
                master.kill();
                killed = true;
            } else {
                master.pause()?;
            }
        }
        sleep(Duration::from_millis(rand::random_range(100..800))).await;
        for master in pair {
            match master.pid() {
                Some(_) => master.resume()?,
                None => master.restart().await?,
            }
        }
        if killed {
            // Their votes do not count yet, and the next two must not be a third and a fourth.
            sleep(Duration::from_millis(1600)).await;
        }
    }
    let report = load.finish().await?;
    // A master that lost its data is no vote for the claim that it voted for.
    storm.says(&report)?.check_exclusion()?;
    cleanup::nothing(&masters.servers().iter().collect::<Vec<_>>()).await
}

/// The slot of a lock that is in use.
async fn some_slot(cluster: &RedisCluster) -> Result<u16, dlock_testkit::Stop> {
    loop {
        let keys = cluster.keys("dlock:{*").await?;
        if !keys.is_empty() {
            return cluster.slot_of(&keys[rand::random_range(0..keys.len())]).await;
        }
        sleep(Duration::from_millis(5)).await;
    }
}
