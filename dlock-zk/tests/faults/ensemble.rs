//! Faults of three servers that stand in for each other.

use std::time::Duration;

use dlock_soak::Storm;
use dlock_testlab::{Verdict, zookeeper::Ensemble};
use tokio::time::sleep;

use crate::{
    cleanup,
    settings::{SESSION, load, options, url_of},
};

pub(crate) async fn its_leader_is_killed() -> Verdict {
    let servers = Ensemble::start(&options()).await?;
    let load = load("elect").start(&url_of(&servers)).await?;
    let mut storm = Storm::begin("elect");
    while storm.next(&load, 400).await {
        let leader = &servers.nodes()[servers.leader().await?];
        leader.kill();
        sleep(Duration::from_millis(rand::random_range(0..1000))).await;
        leader.restart().await?;
        servers.until_well().await?;
    }
    let report = load.finish().await?;
    storm.says(&report)?.check()?;
    cleanup::nothing(&servers.nodes()[0]).await
}

/// Its clients stay connected to it, and are answered, for longer than the leader keeps their
/// sessions.
pub(crate) async fn a_follower_is_cut_off() -> Verdict {
    let servers = Ensemble::start(&options().with_sync_limit(SESSION * 2)).await?;
    let load = load("follower").start(&url_of(&servers)).await?;
    let mut storm = Storm::begin("follower");
    while storm.next(&load, 300).await {
        let followers = servers.followers().await?;
        let node = followers[rand::random_range(0..followers.len())];
        servers.cut_from_leader(node).await?;
        sleep(Duration::from_millis(rand::random_range(100..4000))).await;
        servers.heal(node);
        servers.until_well().await?;
    }
    let report = load.finish().await?;
    storm.says(&report)?.check()?;
    cleanup::nothing(&servers.nodes()[0]).await
}

/// It goes on to lead for a while, and so does another one.
pub(crate) async fn its_leader_is_cut_off() -> Verdict {
    let servers = Ensemble::start(&options()).await?;
    let load = load("leader").start(&url_of(&servers)).await?;
    let mut storm = Storm::begin("leader");
    while storm.next(&load, 300).await {
        let leader = servers.leader().await?;
        servers.isolate(leader);
        sleep(Duration::from_millis(rand::random_range(100..4000))).await;
        servers.heal(leader);
        servers.until_well().await?;
    }
    let report = load.finish().await?;
    storm.says(&report)?.check()?;
    cleanup::nothing(&servers.nodes()[0]).await
}

/// When it continues, it assumes that it still leads, and answers clients that return to it.
pub(crate) async fn its_leader_stands_still() -> Verdict {
    let servers = Ensemble::start(&options()).await?;
    let load = load("still").start(&url_of(&servers)).await?;
    let mut storm = Storm::begin("still");
    while storm.next(&load, 300).await {
        let leader = &servers.nodes()[servers.leader().await?];
        leader.pause()?;
        sleep(Duration::from_millis(rand::random_range(300..4000))).await;
        leader.resume()?;
        servers.until_well().await?;
    }
    let report = load.finish().await?;
    storm.says(&report)?.check()?;
    cleanup::nothing(&servers.nodes()[0]).await
}
