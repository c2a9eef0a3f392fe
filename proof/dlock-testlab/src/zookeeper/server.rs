//! One ZooKeeper server.

use std::{
    fmt::Display,
    fs::{create_dir, read_to_string},
    time::Duration,
};

use futures_util::{FutureExt as _, future::BoxFuture};
use rustix::process::Signal;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use super::programs::Programs;
use crate::{
    Server, SteppedClock, Stop, Verdict,
    directory::{CA, Directory, SERVER},
    process::Launch,
    server::{Kind, Ports},
    wait::soon,
};

/// One ZooKeeper server.
pub type ZooKeeperServer = Server<Options>;

pub(super) static KIND: Kind<Options> =
    Kind { name: "zookeeper", prepare, launch, is_ready, stop: Signal::TERM };

const CONFIG: &str = "zoo.cfg";

/// The server's certificate with its key, in the format that Java requires.
const IDENTITY: &str = "server.pem";

/// Options that keep Java from leaving a file outside of the directory, and from using all
/// processors.
const JAVA: [&str; 2] = ["-XX:+UseSerialGC", "-XX:-UsePerfData"];

/// Options that keep the server small.
const SMALL: &[&str] = &["-Xmx128m", "-XX:TieredStopAtLevel=1"];
const ROOMY: &[&str] = &["-Xmx1g"];

/// The longest time for a starting server to sync with the others.
const INIT: Duration = Duration::from_secs(10);

/// The administrator, whom no access list restricts. `SUPER_DIGEST` is the digest of name and
/// password.
pub(super) const SUPER: &str = "super:dlock";
const SUPER_DIGEST: &str = "super:MqhGFigJhYpcEKMht/JoxZrTQHk=";

/// The options of a ZooKeeper server, or of each server of an ensemble.
#[derive(Clone, Debug)]
pub struct Options {
    lines: Vec<String>,
    properties: Vec<(String, String)>,
    tick: Duration,
    sessions: Option<(Duration, Duration)>,
    sync: Duration,
    containers: Duration,
    words: String,
    tls: bool,
    fsync: bool,
    roomy: bool,
    observers: bool,
    /// The number of the server in its ensemble, from 1, and a line for each of the ensemble's
    /// servers.
    node: Option<(usize, Vec<String>)>,
    /// The option that makes Java use an archive of classes, or write one.
    archive: Option<String>,
    clock: Option<SteppedClock>,
}

impl Options {
    /// Returns the options of a server that does not sync, without TLS. It ticks twice a second,
    /// its sessions last between two ticks and a minute, and it checks for empty containers each
    /// second.
    pub fn new() -> Self {
        Self {
            lines: Vec::new(),
            properties: Vec::new(),
            tick: Duration::from_millis(500),
            sessions: None,
            sync: Duration::from_secs(2),
            containers: Duration::from_secs(1),
            words: "*".to_owned(),
            tls: false,
            fsync: false,
            roomy: false,
            observers: false,
            node: None,
            archive: None,
            clock: None,
        }
    }

    /// Adds a line of `zoo.cfg`, such as `ssl.clientAuth=need` or `globalOutstandingLimit=10`. If
    /// two lines set the same option, the later one applies.
    #[must_use]
    pub fn with_config(mut self, line: &str) -> Self {
        self.lines.push(line.to_owned());
        self
    }

    /// Sets a system property of Java, such as `znode.container.maxPerMinute`. If a property is set
    /// twice, the later value applies.
    #[must_use]
    pub fn with_property(mut self, name: &str, value: &str) -> Self {
        self.properties.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Sets the tick. A session ends on a tick, up to one tick after its timeout.
    #[must_use]
    pub fn with_tick(mut self, tick: Duration) -> Self {
        self.tick = tick;
        self
    }

    /// Sets the bounds of session timeouts. A client that requests a shorter or longer one gets the
    /// bound.
    #[must_use]
    pub fn with_sessions(mut self, shortest: Duration, longest: Duration) -> Self {
        self.sessions = Some((shortest, longest));
        self
    }

    /// Sets how long followers and their leader stay connected without a message. The default is
    /// two seconds. The value is rounded up to ticks.
    #[must_use]
    pub fn with_sync_limit(mut self, limit: Duration) -> Self {
        self.sync = limit;
        self
    }

    /// Sets how often the server removes empty containers, and the age from which it removes one
    /// that never had a child.
    #[must_use]
    pub fn with_container_checks_every(mut self, pause: Duration) -> Self {
        self.containers = pause;
        self
    }

    /// Makes the server answer only these four-letter words, such as `ruok,mntr`, instead of all.
    /// It also answers `srvr`, which shows that it is ready.
    #[must_use]
    pub fn with_words(mut self, words: &str) -> Self {
        self.words = format!("srvr,{words}");
        self
    }

    /// Makes the server listen for TLS too, on another port and with a certificate that is created
    /// for it. With `ssl.clientAuth=need` as a line of configuration, clients must present a
    /// certificate.
    #[must_use]
    pub fn with_tls(mut self) -> Self {
        self.tls = true;
        self
    }

    /// Sets whether an acknowledgement waits until the data is on the disk. This is for benchmarks:
    /// only a power failure loses data that was not synced. A killed server loses nothing either
    /// way.
    #[must_use]
    pub fn with_fsync(mut self, fsync: bool) -> Self {
        self.fsync = fsync;
        self
    }

    /// Sets whether the server uses Java's whole compiler and a gigabyte of memory, for benchmarks
    /// and for hundreds of thousands of nodes. Otherwise it starts fast and stays small.
    #[must_use]
    pub fn with_room(mut self, roomy: bool) -> Self {
        self.roomy = roomy;
        self
    }

    /// Makes the first server of an ensemble the only voter, and the others observers.
    #[must_use]
    pub fn with_observers(mut self) -> Self {
        self.observers = true;
        self
    }

    /// Makes the server use this wall clock, also after a restart. Sessions are not affected: they
    /// use a monotonic clock.
    #[must_use]
    pub fn with_clock(mut self, clock: &SteppedClock) -> Self {
        self.clock = Some(clock.clone());
        self
    }

    pub(super) fn with_node(mut self, number: usize, lines: Vec<String>) -> Self {
        self.node = Some((number, lines));
        self
    }

    pub(super) fn with_archive(mut self, archive: Option<String>) -> Self {
        self.archive = archive;
        self
    }

    /// Returns the bounds of session timeouts.
    fn sessions(&self) -> (Duration, Duration) {
        self.sessions.unwrap_or((self.tick * 2, Duration::from_secs(60)))
    }

    /// Returns the number of ticks in this time, rounded up.
    fn ticks(&self, time: Duration) -> u128 {
        time.as_millis().div_ceil(self.tick.as_millis().max(1)).max(1)
    }
}

impl Default for Options {
    fn default() -> Self {
        Self::new()
    }
}

fn prepare(_: &Options) -> BoxFuture<'_, Result<Directory, Stop>> {
    async { directory() }.boxed()
}

pub(super) fn directory() -> Result<Directory, Stop> {
    Directory::new("dlock-zookeeper-", None, "")
}

fn launch(directory: &Directory, options: &Options, ports: Ports) -> Result<Launch, Stop> {
    let programs = Programs::find()?;
    create_dir(directory.path().join("data"))?;
    if let Some((number, _)) = &options.node {
        directory.write("data/myid", &number.to_string())?;
    }
    if options.tls {
        directory.certify()?;
        let (certificate, key) = SERVER;
        let read = |name| read_to_string(directory.path().join(name));
        directory.write(IDENTITY, &(read(key)? + &read(certificate)?))?;
    }
    directory.write(CONFIG, &(config(options, ports).join("\n") + "\n"))?;
    let class = "org.apache.zookeeper.server.quorum.QuorumPeerMain";
    let properties = properties(options);
    let mut args = JAVA.to_vec();
    args.extend(if options.roomy { ROOMY } else { SMALL });
    args.extend(options.archive.as_deref());
    args.extend(properties.iter().map(String::as_str));
    args.extend(["-cp", &programs.class_path, class, CONFIG]);
    Ok(directory.launch(&programs.java, &args).with_clock(options.clock.as_ref()))
}

/// Returns the lines of the configuration. Paths are relative to the directory.
fn config(options: &Options, ports: Ports) -> Vec<String> {
    let (tick, (shortest, longest)) = (options.tick, options.sessions());
    let mut lines = vec![
        format!("tickTime={}", tick.as_millis()),
        format!("initLimit={}", options.ticks(INIT)),
        format!("syncLimit={}", options.ticks(options.sync)),
        format!("minSessionTimeout={}", shortest.as_millis()),
        format!("maxSessionTimeout={}", longest.as_millis()),
        format!("dataDir=data\nclientPort={}\nclientPortAddress=127.0.0.1", ports.clients),
        "maxClientCnxns=0\nadmin.enableServer=false".to_owned(),
        format!("4lw.commands.whitelist={}", options.words),
        // In kilobytes. A log file has its full size from its start.
        "preAllocSize=64".to_owned(),
        format!("forceSync={}", if options.fsync { "yes" } else { "no" }),
    ];
    if options.tls {
        // The default implementation of connections does not support TLS.
        let netty = "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory";
        lines.push(netty.to_owned());
        lines.push(format!("secureClientPort={}", ports.tls));
        lines.push("secureClientPortAddress=127.0.0.1\nssl.clientAuth=none".to_owned());
        lines.push(format!("ssl.keyStore.location={IDENTITY}\nssl.keyStore.type=PEM"));
        lines.push(format!("ssl.trustStore.location={}\nssl.trustStore.type=PEM", CA));
    }
    if let Some((number, servers)) = &options.node {
        if options.observers {
            let role = |n| if n == 0 { "participant" } else { "observer" };
            lines.extend(servers.iter().enumerate().map(|(n, line)| format!("{line}:{}", role(n))));
            lines.push(format!("standaloneEnabled=false\npeerType={}", role(number - 1)));
        } else {
            lines.extend(servers.iter().cloned());
        }
    }
    lines.extend(options.lines.iter().cloned());
    lines
}

/// Returns the properties that can't be in the configuration file, where ZooKeeper adds a prefix to
/// names that it does not know.
fn properties(options: &Options) -> Vec<String> {
    let set = |name: &str, value: &dyn Display| format!("-D{name}={value}");
    let containers = options.containers.as_millis();
    let mut all = vec![
        set("znode.container.checkIntervalMs", &containers),
        set("znode.container.maxNeverUsedIntervalMs", &containers),
        set("zookeeper.extendedTypesEnabled", &true),
        set("readonlymode.enabled", &true),
        set("zookeeper.DigestAuthenticationProvider.superDigest", &SUPER_DIGEST),
        // A server that was alone for some time would look for others only once a minute.
        set("zookeeper.fastleader.maxNotificationInterval", &1000),
        // A leader without followers would wait for as long as a start may take.
        set("zookeeper.leader.maxTimeToWaitForEpoch", &3000),
        // Passing requests between threads costs more than processing them.
        set("zookeeper.nio.numSelectorThreads", &1),
        set("zookeeper.nio.numWorkerThreads", &0),
        set("zookeeper.commitProcessor.numWorkerThreads", &0),
        // These loggers write a line for each connection and each four-letter word.
        set("org.slf4j.simpleLogger.log.org.apache.zookeeper.server.NIOServerCnxn", &"warn"),
        set("org.slf4j.simpleLogger.log.org.apache.zookeeper.server.NettyServerCnxn", &"warn"),
        set("org.slf4j.simpleLogger.log.org.apache.zookeeper.server.command", &"warn"),
    ];
    all.extend(options.properties.iter().map(|(name, value)| set(name, value)));
    all
}

fn is_ready(server: &ZooKeeperServer) -> BoxFuture<'_, Verdict> {
    async {
        // Another server may have taken a port first, and would answer too. This one loads its data
        // only after it has the port for clients; without the port it ends.
        server.printed("Snapshot loaded in")?;
        if server.options.tls {
            server.printed(&format!("bound to port {}", server.ports.tls))?;
        }
        if server.options.node.is_some() {
            // Without its election port, it takes part in an election and ends some time later.
            server.printed("is accepting connections now, my election bind port")?;
        }
        match server.mode().await? {
            mode if mode.serves() => Ok(()),
            mode => Err(Stop::failed(format!("{mode:?}\n{}", server.daemon.log()))),
        }
    }
    .boxed()
}

impl ZooKeeperServer {
    /// Starts a server and waits until it serves.
    ///
    /// # Errors
    /// [`Stop::missing`] if ZooKeeper is not installed.
    pub async fn start(options: &Options) -> Result<Self, Stop> {
        Self::start_as(&KIND, &options.archived().await?).await
    }

    /// Returns the address for TLS, `127.0.0.1:port`, if it was [configured](Options::with_tls).
    pub fn tls_address(&self) -> Option<String> {
        self.options.tls.then(|| format!("127.0.0.1:{}", self.ports.tls))
    }

    /// Returns the mode of the server.
    ///
    /// # Errors
    /// If no answer arrives.
    pub async fn mode(&self) -> Result<Mode, Stop> {
        Mode::of(&self.four_letter_word("srvr").await?)
    }

    /// Returns the answer to a four-letter word, such as `dump`, which shows sessions with their
    /// ephemeral nodes, `wchp` with the watched paths, or `cons` with the connections.
    ///
    /// # Errors
    /// If no answer arrives.
    pub async fn four_letter_word(&self, word: &str) -> Result<String, Stop> {
        ask(&self.address(), word).await
    }

    /// Returns the number of clients that are connected and have a session.
    ///
    /// # Errors
    /// If no answer arrives.
    pub async fn connections(&self) -> Result<usize, Stop> {
        // The connection of this request has no session.
        Ok(self.four_letter_word("cons").await?.matches("sid=0x").count())
    }
}

/// The mode of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mode {
    /// The server has no ensemble.
    Standalone,
    /// The server leads an ensemble.
    Leader,
    /// The server follows a leader.
    Follower,
    /// The server follows a leader, and has no vote.
    Observer,
    /// The server has no leader, and serves clients that accept read-only mode.
    ReadOnly,
    /// The server has no leader, and serves no clients.
    Looking,
}

impl Mode {
    /// Whether the server serves all clients.
    pub fn serves(self) -> bool {
        matches!(self, Self::Standalone | Self::Leader | Self::Follower | Self::Observer)
    }

    /// Returns the mode in an answer to `srvr`.
    pub(super) fn of(answer: &str) -> Result<Self, Stop> {
        if answer.contains("is not currently serving requests") {
            return Ok(Self::Looking);
        }
        match answer.lines().find_map(|line| line.strip_prefix("Mode: ")) {
            Some("observer") => Ok(Self::Observer),
            Some("standalone") => Ok(Self::Standalone),
            Some("leader") => Ok(Self::Leader),
            Some("follower") => Ok(Self::Follower),
            Some("read-only") => Ok(Self::ReadOnly),
            _ => Err(Stop::failed(format!("the server does not say its mode: {answer:?}"))),
        }
    }
}

/// Returns the answer to a word.
pub(super) async fn ask(address: &str, word: &str) -> Result<String, Stop> {
    soon(async {
        let mut connection = TcpStream::connect(address).await?;
        connection.write_all(word.as_bytes()).await?;
        let mut answer = String::new();
        connection.read_to_string(&mut answer).await?;
        Ok(answer)
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_rounded_up_to_ticks() {
        let options = Options::new().with_tick(Duration::from_millis(150));
        let ticks = |millis| options.ticks(Duration::from_millis(millis));
        assert_eq!([0, 1, 150, 151, 300].map(ticks), [1, 1, 1, 2, 2]);
    }

    #[test]
    fn a_mode_is_read_from_an_answer() {
        let answer = "Zookeeper version: 3.8.0\nMode: follower\nNode count: 5\n";
        assert_eq!(Mode::of(answer).unwrap(), Mode::Follower);
        let answer = "This ZooKeeper instance is not currently serving requests\n";
        assert_eq!(Mode::of(answer).unwrap(), Mode::Looking);
        for answer in ["", "srvr is not executed because it is not in the whitelist."] {
            assert!(Mode::of(answer).is_err());
        }
    }
}
