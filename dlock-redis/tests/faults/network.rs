//! Faults of the network between the holders and the server.

use std::time::Duration;

use dlock_soak::{Load, Storm};
use dlock_testlab::{
    Flow, Proxy, Verdict,
    redis::{Options, RedisServer},
};
use tokio::time::sleep;

use crate::{cleanup, storm::with_options};

pub(crate) async fn connections_are_cut() -> Verdict {
    let server = RedisServer::start(&Options::new()).await?;
    let proxy = Proxy::start(&server.address()).await?;
    let url = format!("redis://{}", proxy.address());
    let load = Load::new("cut").start(&with_options(&url, "")).await?;
    let mut storm = Storm::begin("cut");
    while storm.next(&load, 150).await {
        match rand::random_range(0..3) {
            0 => proxy.cut(),
            1 => proxy.hang_up(),
            _ => drop(server.kill_clients().await?),
        }
    }
    let report = load.finish().await?;
    storm.says(&report)?.check()?;
    cleanup::nothing(&[&server]).await
}

/// Requests take effect, and their answers are lost or late.
pub(crate) async fn replies_are_lost() -> Verdict {
    let server = RedisServer::start(&Options::new()).await?;
    let proxy = Proxy::start(&server.address()).await?;
    let url = format!("redis://{}", proxy.address());
    let load = Load::new("replies").start(&with_options(&url, "")).await?;
    let mut storm = Storm::begin("replies");
    while storm.next(&load, 300).await {
        let time = Duration::from_millis(rand::random_range(1..400));
        match rand::random_range(0..4) {
            0 | 1 => {
                proxy.replies(Flow::Drop);
                sleep(time).await;
                proxy.cut();
            }
            2 => {
                proxy.replies(Flow::Delay(time / 2));
                sleep(time).await;
            }
            _ => {
                proxy.requests(Flow::Hold);
                sleep(time).await;
            }
        }
        // Those that were cut are gone a moment later, and must not see what comes next.
        sleep(Duration::from_millis(5)).await;
        proxy.pass().await?;
    }
    let report = load.finish().await?;
    storm.says(&report)?.check()?;
    cleanup::nothing(&[&server]).await
}
