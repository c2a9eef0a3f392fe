//! Faults of the network between the holders and the server.

use std::time::Duration;

use dlock_soak::{Load, Storm};
use dlock_testlab::{Flow, Proxy, Verdict};
use tokio::time::sleep;

use crate::{
    cleanup,
    server::{Kind, Server},
};

pub(crate) async fn connections_are_cut(kind: Kind) -> Verdict {
    let server = Server::start(kind).await?;
    let proxy = Proxy::start(&server.address()).await?;
    let load = Load::new("cut").start(&server.url_through(&proxy)).await?;
    let mut storm = Storm::begin("cut");
    while storm.next(&load, 150).await {
        match rand::random_range(0..2) {
            0 => proxy.cut(),
            _ => proxy.hang_up(),
        }
    }
    let report = load.finish().await?;
    storm.says(&report)?.check()?;
    cleanup::nothing(&server).await
}

/// The request was applied, and its answer is lost or late.
pub(crate) async fn replies_are_lost(kind: Kind) -> Verdict {
    let server = Server::start(kind).await?;
    let proxy = Proxy::start(&server.address()).await?;
    let load = Load::new("replies").start(&server.url_through(&proxy)).await?;
    let mut storm = Storm::begin("replies");
    while storm.next(&load, 500).await {
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
    cleanup::nothing(&server).await
}

/// Faults of all kinds.
pub(crate) async fn all_at_once(kind: Kind) -> Verdict {
    let server = Server::start(kind).await?;
    let proxy = Proxy::start(&server.address()).await?;
    let mut load = Load::new("all").start(&server.url_through(&proxy)).await?;
    let mut storm = Storm::begin("all");
    while storm.next(&load, 150).await {
        match rand::random_range(0..10) {
            0..2 => load.kill_one().await?,
            2..4 => load.stop_one(Duration::from_millis(rand::random_range(50..800))).await?,
            4..7 => proxy.cut(),
            7..9 => server.end_sessions().await?,
            _ => server.restart().await?,
        }
    }
    let report = load.finish().await?;
    storm.says(&report)?.check()?;
    cleanup::nothing(&server).await
}
