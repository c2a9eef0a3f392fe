//! The servers, their clients, and the keys that are left in the end.

use std::time::Duration;

use dlock_core::Clock;
use dlock_soak::Load;
use dlock_testlab::{
    Stop, Verdict,
    etcd::{EtcdServer, Options},
};
use tokio::time::sleep;

/// How long sessions last.
const SESSION: Duration = Duration::from_secs(3);

/// A backstop on a busy machine.
pub(crate) const BOUND: Duration = Duration::from_secs(60);

/// Servers with short election timeouts.
pub(crate) fn options() -> Options {
    Options::new().with_election(Duration::from_millis(50), Duration::from_millis(500))
}

/// These members, with short sessions.
pub(crate) fn url(hosts: &str) -> String {
    format!("etcd://{hosts}?dlock.session_timeout={}s", SESSION.as_secs())
}

/// The usual mix. The core shortens the longest leases to the length of a session.
pub(crate) fn load(name: &str) -> Load {
    Load::new(name).with_leases(&[300, 600, 2500].map(Duration::from_millis))
}

/// Waits until no key is left: those of a process that was killed end with its session.
pub(crate) async fn nothing_is_left(server: &EtcdServer) -> Verdict {
    until_claims(server, 0).await?;
    until("/dlock/", server, |keys| keys.is_empty()).await.map(|_| ())
}

/// Waits until there is this number of claims, and returns their keys.
pub(crate) async fn until_claims(server: &EtcdServer, count: usize) -> Result<Vec<String>, Stop> {
    until("/dlock/", server, |keys| of_claims(keys).count() == count).await
}

/// The keys of claims.
pub(crate) async fn claims(server: &EtcdServer) -> Result<Vec<String>, Stop> {
    let keys = server.keys_under("/dlock/").await?;
    Ok(of_claims(&keys).cloned().collect())
}

fn of_claims(keys: &[String]) -> impl Iterator<Item = &String> {
    keys.iter().filter(|key| !key.starts_with("/dlock/%session/"))
}

async fn until(
    prefix: &str,
    server: &EtcdServer,
    is_so: impl Fn(&[String]) -> bool,
) -> Result<Vec<String>, Stop> {
    let end = Clock::Boot.now().saturating_add(BOUND);
    loop {
        let wrong = match server.keys_under(prefix).await {
            Ok(keys) if is_so(&keys) => return Ok(of_claims(&keys).cloned().collect()),
            Ok(keys) => Stop::failed(format!("there are still {keys:?}")),
            // The server may not have restarted yet.
            Err(stop) => stop,
        };
        if Clock::Boot.now() >= end {
            return Err(wrong);
        }
        sleep(Duration::from_millis(50)).await;
    }
}
