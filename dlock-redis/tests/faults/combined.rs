//! Faults of holders, connections and scripts of one server at the same time.

use std::time::Duration;

use dlock_soak::{Load, Storm};
use dlock_testlab::{
    Proxy, Verdict,
    redis::{Options, RedisServer},
};

use crate::{cleanup, storm::with_options};

pub(crate) async fn all_faults_at_once() -> Verdict {
    let server = RedisServer::start(&Options::new()).await?;
    let proxy = Proxy::start(&server.address()).await?;
    let url = format!("redis://{}", proxy.address());
    let mut load = Load::new("all").start(&with_options(&url, "")).await?;
    let mut storm = Storm::begin("all");
    while storm.next(&load, 80).await {
        match rand::random_range(0..10) {
            0..2 => load.kill_one().await?,
            2..4 => load.stop_one(Duration::from_millis(rand::random_range(50..800))).await?,
            4..6 => proxy.cut(),
            6 => drop(server.kill_clients().await?),
            _ => server.flush_scripts().await?,
        }
    }
    let report = load.finish().await?;
    storm.says(&report)?.check()?;
    cleanup::nothing(&[&server]).await
}
