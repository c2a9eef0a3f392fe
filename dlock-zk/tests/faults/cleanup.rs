//! The nodes on the servers after all locks were released.

use std::time::Duration;

use dlock_core::Clock;
use dlock_testlab::{Stop, Verdict, zookeeper::ZooKeeperServer};
use tokio::time::sleep;

/// A backstop on a busy machine.
const BOUND: Duration = Duration::from_secs(60);

/// Waits until no claim is left, and then until no node is left. The nodes of a killed process end
/// with its session, and the servers remove empty directories a moment later.
pub(crate) async fn nothing(server: &ZooKeeperServer) -> Verdict {
    until_claims(server, 0).await?;
    let all = async || server.nodes_under("/").await;
    until_there_are(0, all).await.map(|_| ())
}

/// Waits until there is this number of claims, and returns their nodes.
pub(crate) async fn until_claims(
    server: &ZooKeeperServer,
    count: usize,
) -> Result<Vec<String>, Stop> {
    until_there_are(count, async || claims(server).await).await
}

/// The nodes of claims.
pub(crate) async fn claims(server: &ZooKeeperServer) -> Result<Vec<String>, Stop> {
    let mut nodes = server.nodes_under("/dlock").await?;
    // Below the root and the lock's directory.
    nodes.retain(|path| path.matches('/').count() > 2);
    Ok(nodes)
}

async fn until_there_are(
    count: usize,
    look: impl AsyncFn() -> Result<Vec<String>, Stop>,
) -> Result<Vec<String>, Stop> {
    let end = Clock::Boot.now().saturating_add(BOUND);
    loop {
        let seen = look().await;
        let wrong = match seen {
            Ok(seen) if seen.len() == count => return Ok(seen),
            Ok(seen) => Stop::failed(format!("there are not {count} but {seen:?}")),
            // The server may not have restarted yet.
            Err(stop) => stop,
        };
        if Clock::Boot.now() >= end {
            return Err(wrong);
        }
        sleep(Duration::from_millis(20)).await;
    }
}
