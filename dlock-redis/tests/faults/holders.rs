//! Faults of the holders.

use std::time::Duration;

use dlock_soak::{Load, Storm};
use dlock_testlab::{
    Verdict,
    redis::{Options, RedisServer},
};

use crate::{cleanup, storm::with_options};

pub(crate) async fn are_killed() -> Verdict {
    let server = RedisServer::start(&Options::new()).await?;
    let mut load = Load::new("killed").start(&with_options(&server.url(), "")).await?;
    let mut storm = Storm::begin("killed");
    while storm.next(&load, 300).await {
        load.kill_one().await?;
    }
    let report = load.finish().await?;
    storm.says(&report)?.check()?;
    cleanup::nothing(&[&server]).await
}

pub(crate) async fn are_stopped() -> Verdict {
    let server = RedisServer::start(&Options::new()).await?;
    let load = Load::new("stopped").start(&with_options(&server.url(), "")).await?;
    let mut storm = Storm::begin("stopped");
    while storm.next(&load, 150).await {
        load.stop_one(Duration::from_millis(rand::random_range(200..1200))).await?;
    }
    let report = load.finish().await?;
    storm.says(&report)?.check()?;
    cleanup::nothing(&[&server]).await
}

/// How many attempts are dropped.
const CANCELS: usize = 1000;

/// Attempts that are dropped at any of their await points.
pub(crate) async fn cancel_at_random() -> Verdict {
    let server = RedisServer::start(&Options::new()).await?;
    let load = Load::new("cancel").with_cancels(85).with_tasks(12);
    let load = load.start(&with_options(&server.url(), "")).await?;
    let mut storm = Storm::begin("cancel").with_cancels(CANCELS);
    while storm.next(&load, 1000).await {}
    let report = load.finish().await?;
    storm.says(&report)?.check()?;
    cleanup::nothing(&[&server]).await
}
