//! The control: a server that forgets what it acknowledged.

use dlock_soak::Storm;
use dlock_testlab::{Stop, Verdict, etcd::EtcdServer};
use futures_util::future::try_join_all;

use crate::settings::{claims, load, nothing_is_left, options, url};

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
