//! Several ZooKeeper servers that belong together.

use std::time::Duration;

use dlock_testlab::{
    Stop, Verdict,
    zookeeper::{Ensemble, Mode, Options, ZooKeeperServer},
};
use tokio::time::{sleep, timeout};

use crate::{is_alive, zookeeper::with_zookeeper};

/// A backstop on a busy machine.
const LONG: Duration = Duration::from_secs(60);

/// Servers whose followers wait for this time for their leader.
fn patient(limit: Duration) -> Options {
    Options::new().with_tick(Duration::from_millis(200)).with_sync_limit(limit)
}

/// Waits until this node has none of these modes.
async fn until_not(ensemble: &Ensemble, node: usize, modes: &[Mode]) -> Verdict {
    let leaves = async {
        while ensemble.roles().await[node].is_none_or(|mode| modes.contains(&mode)) {
            sleep(Duration::from_millis(20)).await;
        }
    };
    Ok(timeout(LONG, leaves).await?)
}

async fn any_follower(ensemble: &Ensemble) -> Result<usize, Stop> {
    let followers = ensemble.followers().await?;
    followers.last().copied().ok_or_else(|| Stop::failed("nobody follows"))
}

#[test]
fn an_ensemble_elects_a_leader_and_another_one_when_that_dies() {
    with_zookeeper(async {
        let ensemble = Ensemble::start(&Options::new()).await?;
        let first = ensemble.leader().await?;
        let followers = ensemble.followers().await?;
        assert!(followers.len() == 2 && !followers.contains(&first), "{followers:?}");
        assert_eq!(ensemble.connect_string(), ensemble.addresses().join(","));
        let nodes = ensemble.nodes();
        nodes[followers[0]].create("/a", "1").await?;
        assert_eq!(nodes[followers[1]].nodes_under("/").await?, ["/a"]);

        nodes[first].kill();
        let second = ensemble.leader().await?;
        assert_ne!(second, first);
        assert_eq!(ensemble.roles().await[first], None);
        nodes[second].create("/b", "2").await?;
        nodes[first].restart().await?;
        ensemble.until_well().await?;
        assert_eq!(nodes[first].nodes_under("/").await?, ["/a", "/b"]);

        ensemble.restart().await?;
        assert_eq!(nodes[first].nodes_under("/").await?, ["/a", "/b"]);
        let pids: Vec<u32> = nodes.iter().filter_map(ZooKeeperServer::pid).collect();
        assert_eq!(pids.len(), 3);
        drop(ensemble);
        assert!(!pids.into_iter().any(is_alive));
        Ok(())
    });
}

#[test]
fn a_node_alone_serves_nobody_or_only_reads() {
    with_zookeeper(async {
        let ensemble = Ensemble::start(&patient(Duration::from_secs(1))).await?;
        let last = any_follower(&ensemble).await?;
        for node in (0..3).filter(|node| *node != last) {
            ensemble.nodes()[node].kill();
        }
        until_not(&ensemble, last, &[Mode::Follower, Mode::Looking]).await?;
        assert_eq!(ensemble.roles().await[last], Some(Mode::ReadOnly));
        ensemble.restart().await?;
        ensemble.until_well().await
    });
}

#[test]
fn a_follower_that_is_cut_does_not_notice_before_the_sync_limit() {
    with_zookeeper(async {
        let ensemble = Ensemble::start(&patient(LONG)).await?;
        let follower = any_follower(&ensemble).await?;
        let leader = &ensemble.nodes()[ensemble.leader().await?];
        ensemble.cut_from_leader(follower).await?;
        assert!(ensemble.cut_from_leader(ensemble.leader().await?).await.is_err());
        leader.create("/a", "1").await?;
        let cut = &ensemble.nodes()[follower];
        // A read contains all earlier writes, which this node can't guarantee.
        assert!(cut.nodes_under("/").await.is_err());
        assert_eq!(cut.mode().await?, Mode::Follower);

        ensemble.heal(follower);
        assert_eq!(cut.nodes_under("/").await?, ["/a"]);
        ensemble.until_well().await
    });
}

#[test]
fn a_follower_that_is_cut_can_not_join_before_it_is_healed() {
    with_zookeeper(async {
        let ensemble = Ensemble::start(&patient(Duration::from_secs(1))).await?;
        let follower = any_follower(&ensemble).await?;
        let leader = ensemble.leader().await?;
        ensemble.cut_from_leader(follower).await?;
        until_not(&ensemble, follower, &[Mode::Follower]).await?;
        sleep(Duration::from_secs(3)).await;
        let mode = ensemble.roles().await[follower];
        assert!(mode.is_some_and(|mode| !mode.serves()), "{mode:?}");
        ensemble.nodes()[leader].create("/a", "1").await?;
        assert_eq!(ensemble.leader().await?, leader);

        ensemble.heal(follower);
        ensemble.until_well().await?;
        assert_eq!(ensemble.nodes()[follower].nodes_under("/").await?, ["/a"]);
        Ok(())
    });
}

#[test]
fn an_isolated_leader_is_replaced_and_follows_after_healing() {
    with_zookeeper(async {
        let ensemble = Ensemble::start(&patient(Duration::from_secs(1))).await?;
        let first = ensemble.leader().await?;
        ensemble.isolate(first);
        until_not(&ensemble, first, &[Mode::Leader]).await?;
        let second = ensemble.leader().await?;
        assert_ne!(second, first);
        ensemble.nodes()[second].create("/a", "1").await?;

        ensemble.heal(first);
        ensemble.until_well().await?;
        assert_eq!(ensemble.leader().await?, second);
        assert_eq!(ensemble.nodes()[first].nodes_under("/").await?, ["/a"]);
        Ok(())
    });
}
