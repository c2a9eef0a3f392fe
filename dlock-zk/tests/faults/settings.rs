//! How the servers are set up, how they are connected to, and what the holders do.

use std::time::Duration;

use dlock_soak::Load;
use dlock_testlab::zookeeper::Options;

/// How long sessions last.
pub(crate) const SESSION: Duration = Duration::from_secs(2);

/// Servers that tick fast, so that sessions end soon after they should.
pub(crate) fn options() -> Options {
    Options::new().with_tick(Duration::from_millis(100)).with_sync_limit(Duration::from_millis(800))
}

/// These servers, with short sessions.
pub(crate) fn url(hosts: &str) -> String {
    format!("zk://{hosts}?dlock.session_timeout={}ms", SESSION.as_millis())
}

/// The usual mix. Some leases would be longer than a silent session lasts; the core shortens them to
/// the longest lease of the session.
pub(crate) fn load(name: &str) -> Load {
    Load::new(name).with_leases(&[300, 600, 2500].map(Duration::from_millis))
}
