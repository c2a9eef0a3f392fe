//! Harm to what is between the holders and the server.

use std::time::Duration;

use dlock_soak::Storm;
use dlock_testlab::{Door, Flow, Proxy, Verdict, zookeeper::ZooKeeperServer};
use tokio::time::sleep;

use crate::{
    cleanup,
    settings::{load, options, url},
};

pub(crate) async fn connections_are_cut() -> Verdict {
    let server = ZooKeeperServer::start(&options()).await?;
    let proxy = Proxy::start(&server.address()).await?;
    let load = load("cut").start(&url(&proxy.address())).await?;
    let mut storm = Storm::begin("cut");
    while storm.next(&load, 150).await {
        match rand::random() {
            true => proxy.cut(),
            false => proxy.hang_up(),
        }
    }
    let report = load.finish().await?;
    storm.says(&report)?.check()?;
    cleanup::nothing(&server).await
}

/// Requests are executed, and their answers are lost or late. Some connections stay open and dead
/// for longer than some sessions.
pub(crate) async fn replies_are_lost() -> Verdict {
    let server = ZooKeeperServer::start(&options()).await?;
    let proxy = Proxy::start(&server.address()).await?;
    let load = load("replies").start(&url(&proxy.address())).await?;
    let mut storm = Storm::begin("replies");
    while storm.next(&load, 300).await {
        disturb(&proxy).await?;
    }
    let report = load.finish().await?;
    storm.says(&report)?.check()?;
    cleanup::nothing(&server).await
}

/// One fault of some length.
pub(crate) async fn disturb(proxy: &Proxy) -> Verdict {
    let time = Duration::from_millis(rand::random_range(1..400));
    match rand::random_range(0..6) {
        0 | 1 => {
            proxy.replies(Flow::Drop);
            sleep(time).await;
            return forget(proxy).await;
        }
        2 => {
            proxy.replies(Flow::Delay(time / 2));
            sleep(time).await;
        }
        3 => {
            proxy.requests(Flow::Drop);
            sleep(time).await;
            return forget(proxy).await;
        }
        4 => {
            proxy.requests(Flow::Hold);
            sleep(time).await;
        }
        _ => {
            proxy.requests(Flow::Hold);
            proxy.replies(Flow::Hold);
            proxy.door(Door::Silent).await?;
            sleep(time * 10).await;
        }
    }
    proxy.pass().await
}

/// Ends all connections, and lets everything pass on those that come.
pub(crate) async fn forget(proxy: &Proxy) -> Verdict {
    // One that comes now would miss the begin of what its server says.
    proxy.door(Door::Closed).await?;
    proxy.cut();
    // Those that were cut are gone a moment later, and must not see what comes next.
    sleep(Duration::from_millis(5)).await;
    proxy.pass().await
}
