//! One etcd server.

use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
    time::Duration,
};

use futures_util::{FutureExt as _, future::BoxFuture};
use rustix::process::Signal;

use super::Role;
use crate::{
    Server, Stop, Verdict,
    directory::{CA, Directory, SERVER},
    machine::find,
    process::Launch,
    server::{DataDirectory, Kind, Ports},
};

/// One etcd server.
pub type EtcdServer = Server<Options>;

pub(super) static KIND: Kind<Options> =
    Kind { name: "etcd", prepare, launch, is_ready, stop: Signal::TERM };

/// The role of a server.
#[derive(Clone, Copy, Debug)]
pub(super) enum Part {
    Alone,
    /// The index in an ensemble of this many servers, and a number that only these servers have.
    Node(usize, usize, u32),
}

/// The options of an etcd server, or of each server of an ensemble.
#[derive(Clone, Debug)]
pub struct Options {
    flags: Vec<String>,
    election: Option<(Duration, Duration)>,
    tls: bool,
    client_certificates: bool,
    fsync: bool,
    pub(super) root: Option<String>,
    part: Part,
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
            part: Part::Alone,
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

    pub(super) fn with_part(mut self, part: Part) -> Self {
        self.part = part;
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

impl DataDirectory for Options {}

fn prepare(_: &Options) -> BoxFuture<'_, Result<Directory, Stop>> {
    async { directory() }.boxed()
}

pub(super) fn directory() -> Result<Directory, Stop> {
    Directory::new("dlock-etcd-", None, "")
}

fn launch(directory: &Directory, options: &Options, ports: Ports) -> Result<Launch, Stop> {
    let programs = Programs::find()?;
    if options.tls {
        directory.certify()?;
    }
    let mut flags = flags(options, ports);
    if !options.fsync && programs.can_skip_fsync() {
        flags.push("--unsafe-no-fsync".to_owned());
    }
    flags.extend(options.flags.iter().cloned());
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    Ok(directory.launch(&programs.etcd, &flags))
}

/// Returns the flags. Paths are relative to the directory.
fn flags(options: &Options, ports: Ports) -> Vec<String> {
    let plain = format!("http://127.0.0.1:{}", ports.clients);
    let secure = format!("https://127.0.0.1:{}", ports.tls);
    let (listen, advertise) = match options.tls {
        true => (format!("{plain},{secure}"), secure),
        false => (plain.clone(), plain),
    };
    // A server that is alone has no peers, so it needs no port for them.
    let (node, nodes, token, peers) = match options.part {
        Part::Alone => (0, 1, 0, member(0)),
        Part::Node(node, nodes, token) => {
            (node, nodes, token, format!("http://127.0.0.1:{}", ports.peers))
        }
    };
    let all: Vec<String> = (0..nodes).map(|n| format!("n{n}={}", member(n))).collect();
    let mut flags = vec![
        format!("--name=n{node}"),
        "--data-dir=data".to_owned(),
        format!("--listen-client-urls={listen}"),
        format!("--advertise-client-urls={advertise}"),
        format!("--listen-peer-urls={peers}"),
        format!("--initial-advertise-peer-urls={}", member(node)),
        format!("--initial-cluster={}", all.join(",")),
        format!("--initial-cluster-token=dlock-{token}"),
        "--logger=zap".to_owned(),
        // Passwords of tests need no protection.
        "--bcrypt-cost=4".to_owned(),
    ];
    if let Some((heartbeat, timeout)) = options.election {
        flags.push(format!("--heartbeat-interval={}", heartbeat.as_millis()));
        flags.push(format!("--election-timeout={}", timeout.as_millis()));
    }
    if options.tls {
        let (certificate, key) = SERVER;
        flags.push(format!("--cert-file={certificate}"));
        flags.push(format!("--key-file={key}"));
    }
    if options.client_certificates {
        flags.push("--client-cert-auth".to_owned());
        flags.push(format!("--trusted-ca-file={}", CA));
    }
    flags
}

/// Returns the address by which all nodes know this one.
fn member(node: usize) -> String {
    format!("unix://{}", socket(node))
}

/// Returns the file name in `member`. etcd requires a port in it, and Go uses no proxy of the
/// environment for `localhost`.
pub(super) fn socket(node: usize) -> String {
    format!("localhost:{}", node + 1)
}

fn is_ready(server: &EtcdServer) -> BoxFuture<'_, Verdict> {
    async {
        // Another server may have taken a port first, and would answer too. This one listens on all
        // its ports before it prints this, and prints it only with a leader.
        server.printed("serving client traffic insecurely")?;
        match server.role().await? {
            Role::Leader | Role::Follower => Ok(()),
            Role::Leaderless => Err(Stop::failed("it knows no leader")),
        }
    }
    .boxed()
}

impl EtcdServer {
    /// Starts a server and waits until it serves.
    ///
    /// # Errors
    /// [`Stop::missing`] if etcd is not installed.
    pub async fn start(options: &Options) -> Result<Self, Stop> {
        let server = Self::start_as(&KIND, options).await?;
        server.add_root().await?;
        Ok(server)
    }

    /// Returns the version of the server, such as `3.4.23`.
    pub fn version(&self) -> &'static str {
        Programs::find().map(|programs| programs.version.as_str()).unwrap_or_default()
    }

    /// Returns the URL for clients: `etcd://127.0.0.1:port`, with the user if there is
    /// [one](Options::with_root).
    pub fn url(&self) -> String {
        format!("etcd://{}{}", self.options.user_info(), self.address())
    }

    /// Returns the address for TLS, `127.0.0.1:port`, if it was [configured](Options::with_tls).
    pub fn tls_address(&self) -> Option<String> {
        self.options.tls.then(|| format!("127.0.0.1:{}", self.ports.tls))
    }
}

const BIN: &str = "DLOCK_ETCD_BIN";

/// The programs, which are the same for the whole process.
static FOUND: OnceLock<Result<Programs, Stop>> = OnceLock::new();

/// The server and its command line client.
#[derive(Clone, Debug)]
pub(super) struct Programs {
    pub(super) etcd: PathBuf,
    pub(super) etcdctl: PathBuf,
    /// The version of the server, such as `3.4.23`.
    pub(super) version: String,
}

impl Programs {
    pub(super) fn find() -> Result<&'static Self, Stop> {
        FOUND.get_or_init(look).as_ref().map_err(Stop::clone)
    }

    /// Whether the server can do without syncing.
    pub(super) fn can_skip_fsync(&self) -> bool {
        !["3.3.", "3.4."].iter().any(|old| self.version.starts_with(old))
    }
}

fn look() -> Result<Programs, Stop> {
    let bin = std::env::var_os(BIN).map(PathBuf::from);
    let given = |name: &str| bin.as_ref().map(|bin| bin.join(name)).filter(|path| path.is_file());
    let etcd = match &bin {
        Some(bin) => given("etcd").ok_or_else(|| {
            Stop::missing(format!("{BIN} is {}, where no etcd is", bin.display()))
        })?,
        None => find("etcd")
            .ok_or_else(|| Stop::missing("etcd is not installed: apt-get install etcd-server"))?,
    };
    let etcdctl = given("etcdctl")
        .or_else(|| find("etcdctl"))
        .ok_or_else(|| Stop::missing("etcdctl is not installed: apt-get install etcd-client"))?;
    let version = version(&etcd)?;
    Ok(Programs { etcd, etcdctl, version })
}

fn version(etcd: &Path) -> Result<String, Stop> {
    let output = Command::new(etcd).arg("--version").output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let version = text.lines().find_map(|line| line.strip_prefix("etcd Version: "));
    let unknown = || Stop::failed(format!("{} tells no version: {text}", etcd.display()));
    version.map(|version| version.trim().to_owned()).ok_or_else(unknown)
}
