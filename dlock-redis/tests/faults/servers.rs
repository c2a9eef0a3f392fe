//! Servers that lose what they acknowledged, in ways that no topology of the soak has.

use std::time::Duration;

use dlock_core::Clock;
use dlock_soak::{Load, Storm};
use dlock_testlab::{
    Stop, Verdict,
    redis::{Options, RedisSentinel, RedisServer},
};
use tokio::time::sleep;

/// A backstop on a busy machine.
const BOUND: Duration = Duration::from_secs(60);

/// Options that fit short leases, and a check of the records that remain.
const OPTIONS: &str = "dlock.response_timeout=500ms";

/// Sentinels that find the master down at the same time may fail over twice in a row, the second
/// time to a replica of the first master. Then a lock may have two holders; tokens stay in order.
pub(crate) async fn any_replica_takes_over() -> Verdict {
    let servers = RedisSentinel::start(&Options::new()).await?;
    let url = format!("{}?{OPTIONS}&dlock.durability=1", servers.url());
    let load = Load::new("sentinels").start(&url).await?;
    let mut storm = Storm::begin("sentinels");
    while storm.next(&load, 800).await {
        let killed = servers.kill_master().await?;
        servers.until_failed_over(&killed.address()).await?;
        // If the master came back before its other replica follows the new one, that replica would
        // agree with it.
        servers.until_in_sync().await?;
        killed.restart().await?;
        servers.until_in_sync().await?;
    }
    let report = load.finish().await?;
    println!("sentinels: {} names with overlaps", report.overlaps().len());
    storm.says(&report)?.check_tokens()?;
    let end = Clock::Boot.now().saturating_add(BOUND);
    loop {
        let mut left = servers.master_server().await?.keys("*").await?;
        // The tokens of the buckets stay.
        left.retain(|key| !key.ends_with("}t"));
        if left.is_empty() {
            return Ok(());
        }
        if Clock::Boot.now() >= end {
            return Err(Stop::failed(format!("this is left: {left:?}")));
        }
        sleep(Duration::from_millis(50)).await;
    }
}

/// The control: the checkers notice that exclusion was broken on purpose.
pub(crate) async fn an_emptied_server_is_noticed() -> Verdict {
    // On a busy machine, a run may contain too few events.
    for _ in 0..8 {
        if is_seen_to_be_emptied().await? {
            return Ok(());
        }
    }
    Err(Stop::failed("nobody noticed that everything was forgotten"))
}

async fn is_seen_to_be_emptied() -> Result<bool, Stop> {
    let server = RedisServer::start(&Options::new()).await?;
    let load = Load::new("emptied").start(&format!("{}?{OPTIONS}", server.url())).await?;
    let mut storm = Storm::begin("emptied");
    while storm.next(&load, 60).await {
        server.command(&["FLUSHALL"]).await?.ok()?;
    }
    let report = load.finish().await?;
    let enough = storm.says(&report)?.enough().is_ok();
    Ok(enough && !report.overlaps().is_empty() && report.check_exclusion().is_err())
}
