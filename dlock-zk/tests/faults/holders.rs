//! Faults of the holders.

use std::time::Duration;

use dlock_soak::Storm;
use dlock_testlab::{Verdict, zookeeper::ZooKeeperServer};
use tokio::try_join;

use crate::{
    cleanup,
    settings::{load, options, url},
};

pub(crate) async fn are_killed() -> Verdict {
    let server = ZooKeeperServer::start(&options()).await?;
    let mut load = load("killed").start(&url(&server.address())).await?;
    let mut storm = Storm::begin("killed");
    while storm.next(&load, 300).await {
        load.kill_one().await?;
    }
    let report = load.finish().await?;
    storm.says(&report)?.check()?;
    cleanup::nothing(&server).await
}

pub(crate) async fn are_stopped() -> Verdict {
    let server = ZooKeeperServer::start(&options()).await?;
    let load = load("stopped").start(&url(&server.address())).await?;
    let mut storm = Storm::begin("stopped");
    while storm.next(&load, 100).await {
        let times = [200..1500, 1000..3500].map(rand::random_range);
        let [some, other] = times.map(|time: u64| load.stop_one(Duration::from_millis(time)));
        try_join!(some, other)?;
    }
    let report = load.finish().await?;
    storm.says(&report)?.check()?;
    cleanup::nothing(&server).await
}

/// How many attempts are dropped.
const CANCELS: usize = 1000;

/// Attempts that are dropped at any of their await points.
pub(crate) async fn change_their_minds() -> Verdict {
    let server = ZooKeeperServer::start(&options()).await?;
    let load = load("cancel").with_cancels(85).with_tasks(12);
    let load = load.start(&url(&server.address())).await?;
    let mut storm = Storm::begin("cancel").with_cancels(CANCELS);
    while storm.next(&load, 1000).await {}
    let report = load.finish().await?;
    storm.says(&report)?.check()?;
    cleanup::nothing(&server).await
}
