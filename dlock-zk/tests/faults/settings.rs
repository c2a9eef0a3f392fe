//! The settings of the servers, the clients and the load.

use std::time::Duration;

use dlock_soak::Load;
use dlock_testlab::zookeeper::Options;

/// The session timeout.
pub(crate) const SESSION: Duration = Duration::from_secs(2);

/// Servers with a short tick, so that sessions end soon after their timeout.
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
