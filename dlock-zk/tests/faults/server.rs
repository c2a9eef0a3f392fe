//! Harm to the one server.

use std::time::Duration;

use dlock_soak::Storm;
use dlock_testlab::{Stop, Verdict, zookeeper::ZooKeeperServer};
use futures_util::future::try_join_all;
use tokio::time::sleep;

use crate::{
    cleanup,
    settings::{SESSION, load, options, url},
};

/// It comes back with everything that it has acknowledged, and with the sessions. It stays for long
/// enough that clients find it, which look for it less and less often.
pub(crate) async fn is_killed() -> Verdict {
    let server = ZooKeeperServer::start(&options()).await?;
    let load = load("crash").start(&url(&server.address())).await?;
    let mut storm = Storm::begin("crash");
    while storm.next(&load, 1600).await {
        server.kill();
        sleep(Duration::from_millis(rand::random_range(0..300))).await;
        server.restart().await?;
    }
    let report = load.finish().await?;
    storm.says(&report)?.check()?;
    cleanup::nothing(&server).await
}

/// It stands still for longer than some leases and some sessions, and then does what it was asked
/// meanwhile.
pub(crate) async fn is_paused() -> Verdict {
    let server = ZooKeeperServer::start(&options()).await?;
    let load = load("paused").start(&url(&server.address())).await?;
    let mut storm = Storm::begin("paused");
    while storm.next(&load, 400).await {
        server.pause()?;
        let longest = if rand::random_bool(0.3) { 4000 } else { 700 };
        sleep(Duration::from_millis(rand::random_range(50..longest))).await;
        server.resume()?;
    }
    let report = load.finish().await?;
    storm.says(&report)?.check()?;
    cleanup::nothing(&server).await
}

/// The number of faults until one is noticed: on a busy machine few locks are used meanwhile.
const TRIES: usize = 8;

/// How often all claims are deleted, at least.
const WIPED: usize = 20;

/// The control: where exclusion is broken on purpose, it is seen.
pub(crate) async fn forgets_nodes() -> Verdict {
    for _ in 0..TRIES {
        if is_seen_to_forget_nodes().await? {
            return Ok(());
        }
    }
    Err(Stop::failed("nobody noticed that nodes were deleted"))
}

async fn is_seen_to_forget_nodes() -> Result<bool, Stop> {
    let server = ZooKeeperServer::start(&options()).await?;
    let load = load("wiped").start(&url(&server.address())).await?;
    let mut storm = Storm::begin("wiped");
    let mut wiped = 0;
    while storm.next(&load, 30).await || wiped < WIPED {
        // All at once: on a busy machine, most of what is deleted later is no claim any more.
        let claims = cleanup::claims(&server).await?;
        try_join_all(claims.iter().map(|claim| server.delete_recursively(claim))).await?;
        wiped += 1;
    }
    let report = load.finish().await?;
    let enough = storm.says(&report)?.enough().is_ok();
    cleanup::nothing(&server).await?;
    Ok(enough && !report.overlaps().is_empty() && report.check_exclusion().is_err())
}

/// The control: tokens that restart are noticed.
pub(crate) async fn forgets() -> Verdict {
    for _ in 0..TRIES {
        if is_seen_to_forget_everything().await? {
            return Ok(());
        }
    }
    Err(Stop::failed("nobody noticed that everything was forgotten"))
}

async fn is_seen_to_forget_everything() -> Result<bool, Stop> {
    let server = ZooKeeperServer::start(&options()).await?;
    let load = load("emptied").start(&url(&server.address())).await?;
    let mut storm = Storm::begin("emptied");
    while storm.next(&load, 1500).await {
        server.kill();
        std::fs::remove_dir_all(server.directory().join("data/version-2"))?;
        server.restart().await?;
        // Clients that know of what it has forgotten are refused until they give their session up.
        sleep(SESSION * 2).await;
    }
    let report = load.finish().await?;
    let enough = storm.says(&report)?.enough().is_ok();
    cleanup::nothing(&server).await?;
    Ok(enough && !report.token_violations().is_empty() && report.check_tokens().is_err())
}
