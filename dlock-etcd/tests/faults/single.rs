//! Faults of the holders, of a single server, and of the network in between.

use std::time::Duration;

use dlock_soak::Storm;
use dlock_testlab::{Flow, Proxy, Stop, Verdict, etcd::EtcdServer};
use futures_util::future::try_join_all;
use tokio::{time::sleep, try_join};

use crate::settings::{claims, load, nothing_is_left, options, url};

pub(crate) async fn holders_are_killed() -> Verdict {
    let server = EtcdServer::start(&options()).await?;
    let mut load = load("killed").start(&url(&server.address())).await?;
    let mut storm = Storm::begin("killed");
    while storm.next(&load, 300).await {
        load.kill_one().await?;
    }
    let report = load.finish().await?;
    storm.says(&report)?.check()?;
    nothing_is_left(&server).await
}

pub(crate) async fn holders_are_stopped() -> Verdict {
    let server = EtcdServer::start(&options()).await?;
    let load = load("stopped").start(&url(&server.address())).await?;
    let mut storm = Storm::begin("stopped");
    while storm.next(&load, 100).await {
        let times = [200..1500, 1000..6000].map(rand::random_range);
        let [some, other] = times.map(|time: u64| load.stop_one(Duration::from_millis(time)));
        try_join!(some, other)?;
    }
    let report = load.finish().await?;
    storm.says(&report)?.check()?;
    nothing_is_left(&server).await
}

/// How many attempts are dropped.
const CANCELS: usize = 1000;

/// Attempts that are dropped at any of their await points.
pub(crate) async fn holders_change_their_minds() -> Verdict {
    let server = EtcdServer::start(&options()).await?;
    let load = load("cancel").with_cancels(85).with_tasks(12);
    let load = load.start(&url(&server.address())).await?;
    let mut storm = Storm::begin("cancel").with_cancels(CANCELS);
    while storm.next(&load, 1000).await {}
    let report = load.finish().await?;
    storm.says(&report)?.check()?;
    nothing_is_left(&server).await
}

/// It comes back with all that it has acknowledged, and with whole TTLs.
pub(crate) async fn is_killed() -> Verdict {
    let server = EtcdServer::start(&options()).await?;
    let load = load("crash").start(&url(&server.address())).await?;
    let mut storm = Storm::begin("crash");
    while storm.next(&load, 1600).await {
        server.kill();
        sleep(Duration::from_millis(rand::random_range(0..300))).await;
        server.restart().await?;
    }
    let report = load.finish().await?;
    storm.says(&report)?.check()?;
    nothing_is_left(&server).await
}

/// It stands still for longer than some leases and some sessions, and then does what was requested
/// meanwhile.
pub(crate) async fn is_paused() -> Verdict {
    let server = EtcdServer::start(&options()).await?;
    let load = load("paused").start(&url(&server.address())).await?;
    let mut storm = Storm::begin("paused");
    while storm.next(&load, 400).await {
        server.pause()?;
        let longest = if rand::random_bool(0.3) { 6000 } else { 700 };
        sleep(Duration::from_millis(rand::random_range(50..longest))).await;
        server.resume()?;
    }
    let report = load.finish().await?;
    storm.says(&report)?.check()?;
    nothing_is_left(&server).await
}

/// How often faults are tried until one is seen: on a busy machine little else may happen meanwhile.
const TRIES: usize = 8;

/// How often all claims are deleted, at least.
const WIPED: usize = 20;

/// The control: if exclusion is broken on purpose, that is seen.
pub(crate) async fn forgets_keys() -> Verdict {
    for _ in 0..TRIES {
        let server = EtcdServer::start(&options()).await?;
        let load = load("wiped").start(&url(&server.address())).await?;
        let mut storm = Storm::begin("wiped");
        let mut wiped = 0;
        while storm.next(&load, 30).await || wiped < WIPED {
            let claims = claims(&server).await?;
            try_join_all(claims.iter().map(|claim| server.delete(claim))).await?;
            wiped += 1;
        }
        let report = load.finish().await?;
        let enough = storm.says(&report)?.enough().is_ok();
        nothing_is_left(&server).await?;
        if enough && !report.overlaps().is_empty() && report.check_exclusion().is_err() {
            return Ok(());
        }
    }
    Err(Stop::failed("nobody noticed that keys were deleted"))
}

pub(crate) async fn connections_are_cut() -> Verdict {
    let server = EtcdServer::start(&options()).await?;
    let proxy = Proxy::start(&server.address()).await?;
    let load = load("cut").start(&url(&proxy.address())).await?;
    let mut storm = Storm::begin("cut");
    while storm.next(&load, 200).await {
        match rand::random_bool(0.5) {
            true => proxy.cut(),
            false => proxy.hang_up(),
        }
    }
    let report = load.finish().await?;
    storm.says(&report)?.check()?;
    nothing_is_left(&server).await
}

/// Requests are applied, and their answers are lost with the connection.
pub(crate) async fn replies_are_lost() -> Verdict {
    let server = EtcdServer::start(&options()).await?;
    let proxy = Proxy::start(&server.address()).await?;
    let load = load("replies").start(&url(&proxy.address())).await?;
    let mut storm = Storm::begin("replies");
    while storm.next(&load, 300).await {
        proxy.replies(Flow::Drop);
        sleep(Duration::from_millis(rand::random_range(20..300))).await;
        proxy.cut();
        proxy.replies(Flow::Pass);
    }
    let report = load.finish().await?;
    storm.says(&report)?.check()?;
    nothing_is_left(&server).await
}
