//! The control: a server that forgets what it acknowledged.

use dlock_soak::Storm;
use dlock_testlab::{Stop, Verdict, etcd::EtcdServer};
use futures_util::future::try_join_all;

use crate::settings::{claims, load, nothing_is_left, options, url};

/// The number of attempts until a fault is noticed: on a busy machine, a run may contain too few
/// events.
const TRIES: usize = 8;

/// The smallest number of deletions of all claims.
const WIPED: usize = 20;

/// The control: the checkers notice that exclusion was broken on purpose.
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
