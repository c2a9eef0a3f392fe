//! Faults of the holders.

use std::time::Duration;

use dlock_soak::{Load, Storm};
use dlock_testkit::Verdict;

use crate::{
    cleanup,
    server::{Kind, Server},
};

pub(crate) async fn are_killed(kind: Kind) -> Verdict {
    let server = Server::start(kind).await?;
    let mut load = Load::new("killed").start(&server.url()).await?;
    let mut storm = Storm::begin("killed");
    while storm.next(&load, 300).await {
        load.kill_one().await?;
    }
    let report = load.finish().await?;
    storm.says(&report)?.check()?;
    cleanup::nothing(&server).await
}

pub(crate) async fn are_stopped(kind: Kind) -> Verdict {
    let server = Server::start(kind).await?;
    let load = Load::new("stopped").start(&server.url()).await?;
    let mut storm = Storm::begin("stopped");
    while storm.next(&load, 150).await {
        load.stop_one(Duration::from_millis(rand::random_range(200..1200))).await?;
    }
    let report = load.finish().await?;
    storm.says(&report)?.check()?;
    cleanup::nothing(&server).await
}

/// How many attempts are dropped.
const CANCELS: usize = 1000;

/// Attempts that are dropped at any of their await points.
pub(crate) async fn change_their_minds(kind: Kind) -> Verdict {
    let server = Server::start(kind).await?;
    let load = Load::new("cancel").with_cancels(85).with_tasks(12).start(&server.url()).await?;
    let mut storm = Storm::begin("cancel").with_cancels(CANCELS);
    while storm.next(&load, 1000).await {}
    let report = load.finish().await?;
    storm.says(&report)?.check()?;
    cleanup::nothing(&server).await
}
