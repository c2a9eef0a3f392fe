//! The controls: a server that forgets what it acknowledged.

use dlock_soak::Storm;
use dlock_testlab::{Stop, Verdict, zookeeper::ZooKeeperServer};
use futures_util::future::try_join_all;
use tokio::time::sleep;

use crate::{
    cleanup,
    settings::{SESSION, load, options, url},
};

/// The number of attempts until a fault is noticed: on a busy machine, a run may contain too few
/// events.
const TRIES: usize = 8;

/// The smallest number of deletions of all claims.
const WIPED: usize = 20;

/// The control: the checkers notice that exclusion was broken on purpose.
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
        // All nodes at once: on a busy machine, most claims have ended before a later deletion.
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
        // The server refuses clients that know of lost transactions, until they give up their
        // sessions.
        sleep(SESSION * 2).await;
    }
    let report = load.finish().await?;
    let enough = storm.says(&report)?.enough().is_ok();
    cleanup::nothing(&server).await?;
    Ok(enough && !report.token_violations().is_empty() && report.check_tokens().is_err())
}
