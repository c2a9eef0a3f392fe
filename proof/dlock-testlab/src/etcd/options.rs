//! The options of an etcd server.

use std::time::Duration;

/// The options of an etcd server, or of each server of an ensemble.
#[derive(Clone, Debug)]
pub struct Options {
    pub(super) flags: Vec<String>,
    pub(super) election: Option<(Duration, Duration)>,
    pub(super) tls: bool,
    pub(super) client_certificates: bool,
    pub(super) fsync: bool,
    pub(super) root: Option<String>,
}

impl Options {
    /// Returns the options of a server without TLS and without users. It does not sync, if its
    /// version can do without: 3.4 always syncs.
    pub fn new() -> Self {
        Self {
            flags: Vec::new(),
            election: None,
            tls: false,
            client_certificates: false,
            fsync: false,
            root: None,
        }
    }

    /// Adds a flag of `etcd`, such as `--max-txn-ops=8`. If two flags set the same option, the later
    /// one applies.
    #[must_use]
    pub fn with_flag(mut self, flag: &str) -> Self {
        self.flags.push(flag.to_owned());
        self
    }

    /// Sets how often a leader sends heartbeats, and how long a follower waits for one before it
    /// starts an election. The defaults of etcd are 100 ms and a second. The shortest TTL of a lease
    /// is one and a half election timeouts, in whole seconds.
    #[must_use]
    pub fn with_election(mut self, heartbeat: Duration, timeout: Duration) -> Self {
        self.election = Some((heartbeat, timeout));
        self
    }

    /// Sets the size of the database from which the server refuses writes, in bytes.
    #[must_use]
    pub fn with_quota(self, bytes: u64) -> Self {
        self.with_flag(&format!("--quota-backend-bytes={bytes}"))
    }

    /// Makes the server listen for TLS too, on another port and with a certificate that is created
    /// for it. It tells clients only the address for TLS.
    #[must_use]
    pub fn with_tls(mut self) -> Self {
        self.tls = true;
        self
    }

    /// Like [`Self::with_tls`], and clients that use TLS must present a certificate.
    #[must_use]
    pub fn with_client_certificates(mut self) -> Self {
        self.client_certificates = true;
        self.with_tls()
    }

    /// Makes clients log in. There is one user, `root` with this password, who may do everything.
    /// [`EtcdServer::etcdctl`](super::EtcdServer::etcdctl) runs as this user, and can add others.
    #[must_use]
    pub fn with_root(mut self, password: &str) -> Self {
        self.root = Some(password.to_owned());
        self
    }

    /// Sets how long a login lasts after its last use, in whole seconds.
    #[must_use]
    pub fn with_token_ttl(self, ttl: Duration) -> Self {
        self.with_flag(&format!("--auth-token-ttl={}", ttl.as_secs()))
    }

    /// Sets whether an acknowledgement waits until the data is on the disk. This is for benchmarks:
    /// only a power failure loses data that was not synced. A killed server loses nothing either
    /// way.
    #[must_use]
    pub fn with_fsync(mut self, fsync: bool) -> Self {
        self.fsync = fsync;
        self
    }

    /// Returns the name and password for a URL.
    pub(super) fn user_info(&self) -> String {
        self.root.as_ref().map(|password| format!("root:{password}@")).unwrap_or_default()
    }
}

impl Default for Options {
    fn default() -> Self {
        Self::new()
    }
}
