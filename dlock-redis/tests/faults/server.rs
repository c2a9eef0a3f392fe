//! Faults of a single server.

use std::time::Duration;

use dlock_soak::{Load, Storm};
use dlock_testlab::{
    Stop, Verdict,
    redis::{Options, Persistence, RedisServer},
};
use tokio::time::sleep;

use crate::{cleanup, storm::with_options};

/// With every write on disk before it answers, a restarted server knows all holders.
pub(crate) async fn is_killed() -> Verdict {
    let options = Options::new().with_persistence(Persistence::AofAlways);
    let server = RedisServer::start(&options).await?;
    let load = Load::new("aof").start(&with_options(&server.url(), "")).await?;
    let mut storm = Storm::begin("aof");
    while storm.next(&load, 600).await {
        kill_and_restart(&server).await?;
    }
    let report = load.finish().await?;
    storm.says(&report)?.check()?;
    cleanup::nothing(&[&server]).await
}

/// Without, it must not grant anything before the leases have ended that it forgot.
pub(crate) async fn loses_data() -> Verdict {
    let server = RedisServer::start(&Options::new()).await?;
    let load = Load::new("loses_data");
    let guard = format!("dlock.restart_guard={}ms", load.longest_lease().as_millis());
    let load = load.start(&with_options(&server.url(), &guard)).await?;
    let mut storm = Storm::begin("loses_data");
    while storm.next(&load, 2500).await {
        kill_and_restart(&server).await?;
    }
    let report = load.finish().await?;
    storm.says(&report)?.check_exclusion()?;
    cleanup::nothing(&[&server]).await
}

/// A restart without data and without a guard grants a lock twice. Tokens stay in order nevertheless.
pub(crate) async fn loses_data_unguarded() -> Verdict {
    let server = RedisServer::start(&Options::new()).await?;
    let load = Load::new("unguarded").start(&with_options(&server.url(), "")).await?;
    let mut storm = Storm::begin("unguarded");
    while storm.next(&load, 600).await {
        kill_and_restart(&server).await?;
    }
    let report = load.finish().await?;
    storm.says(&report)?.check_tokens()?;
    cleanup::nothing(&[&server]).await
}

/// It is paused for longer than some leases, and then executes the requests that arrived meanwhile.
pub(crate) async fn is_paused() -> Verdict {
    let server = RedisServer::start(&Options::new()).await?;
    let load = Load::new("paused").start(&with_options(&server.url(), "")).await?;
    let mut storm = Storm::begin("paused");
    while storm.next(&load, 500).await {
        server.pause()?;
        sleep(Duration::from_millis(rand::random_range(50..900))).await;
        server.resume()?;
    }
    let report = load.finish().await?;
    storm.says(&report)?.check()?;
    cleanup::nothing(&[&server]).await
}

/// The control: where exclusion is broken on purpose, it is seen.
pub(crate) async fn is_emptied() -> Verdict {
    // On a busy machine little else may happen meanwhile.
    for _ in 0..8 {
        if is_seen_to_be_emptied().await? {
            return Ok(());
        }
    }
    Err(Stop::failed("nobody noticed that everything was forgotten"))
}

async fn is_seen_to_be_emptied() -> Result<bool, Stop> {
    let server = RedisServer::start(&Options::new()).await?;
    let load = Load::new("emptied").start(&with_options(&server.url(), "")).await?;
    let mut storm = Storm::begin("emptied");
    while storm.next(&load, 60).await {
        server.command(&["FLUSHALL"]).await?.ok()?;
    }
    let report = load.finish().await?;
    let enough = storm.says(&report)?.enough().is_ok();
    Ok(enough && !report.overlaps().is_empty() && report.check_exclusion().is_err())
}

pub(crate) async fn loses_its_scripts() -> Verdict {
    let server = RedisServer::start(&Options::new()).await?;
    let load = Load::new("scripts").start(&with_options(&server.url(), "")).await?;
    let mut storm = Storm::begin("scripts");
    while storm.next(&load, 50).await {
        server.flush_scripts().await?;
    }
    let report = load.finish().await?;
    storm.says(&report)?.check()?;
    cleanup::nothing(&[&server]).await
}

async fn kill_and_restart(server: &RedisServer) -> Verdict {
    server.kill();
    sleep(Duration::from_millis(rand::random_range(0..150))).await;
    server.restart().await
}
