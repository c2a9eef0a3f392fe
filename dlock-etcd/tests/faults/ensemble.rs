//! Faults of three members that stand in for each other.

use std::time::Duration;

use dlock_soak::{Running, Storm};
use dlock_testlab::{Verdict, etcd::Ensemble};
use tokio::time::sleep;

use crate::settings::{load, nothing_is_left, options, url_of};

/// Repeats a fault while there is a load, and then checks what was seen.
async fn storm(
    name: &'static str,
    pause: u64,
    fault: impl AsyncFn(&Ensemble, &Running) -> Verdict,
) -> Verdict {
    let servers = Ensemble::start(&options()).await?;
    let load = load(name).start(&url_of(&servers)).await?;
    let mut storm = Storm::begin(name);
    while storm.next(&load, pause).await {
        fault(&servers, &load).await?;
    }
    let report = load.finish().await?;
    storm.says(&report)?.check()?;
    nothing_is_left(&servers.nodes()[0]).await
}

async fn for_up_to(millis: u64) {
    sleep(Duration::from_millis(rand::random_range(100..millis))).await;
}

pub(crate) async fn its_leader_is_killed() -> Verdict {
    storm("elect", 400, async |servers, _| {
        let leader = &servers.nodes()[servers.leader().await?];
        leader.kill();
        for_up_to(1000).await;
        leader.restart().await?;
        servers.until_well().await
    })
    .await
}

pub(crate) async fn its_leader_moves() -> Verdict {
    storm("move", 200, async |servers, _| {
        let followers = servers.followers().await?;
        let to = followers[rand::random_range(0..followers.len())];
        servers.move_leader(to).await
    })
    .await
}

/// Once it goes on, it answers as if it still led.
pub(crate) async fn its_leader_stands_still() -> Verdict {
    storm("still", 300, async |servers, _| {
        let leader = &servers.nodes()[servers.leader().await?];
        leader.pause()?;
        for_up_to(6000).await;
        leader.resume()?;
        servers.until_well().await
    })
    .await
}

/// It answers as if it led for a while, and so does another member.
pub(crate) async fn its_leader_is_cut_off() -> Verdict {
    storm("leader", 300, async |servers, _| {
        let leader = servers.leader().await?;
        servers.isolate(leader);
        for_up_to(6000).await;
        servers.heal(leader);
        servers.until_well().await
    })
    .await
}

/// It answers reads and reports no events, for longer than the leader keeps its clients' sessions.
pub(crate) async fn a_follower_is_cut_off() -> Verdict {
    storm("follower", 300, async |servers, _| {
        let followers = servers.followers().await?;
        let node = followers[rand::random_range(0..followers.len())];
        servers.isolate(node);
        for_up_to(6000).await;
        servers.heal(node);
        servers.until_well().await
    })
    .await
}

/// If it leads, each write waits for it.
pub(crate) async fn a_member_is_slow() -> Verdict {
    storm("slow", 100, async |servers, _| {
        let node = rand::random_range(0..servers.nodes().len());
        servers.slow(node, Duration::from_millis(rand::random_range(5..30)));
        for_up_to(2000).await;
        servers.heal(node);
        servers.until_well().await
    })
    .await
}

pub(crate) async fn all_is_compacted() -> Verdict {
    storm("compact", 100, async |servers, _| servers.nodes()[0].compact().await.map(|_| ())).await
}
