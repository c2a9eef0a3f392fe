//! One Redis server, and several independent ones.

use std::{
    fs,
    path::{Path, PathBuf},
};

use futures_util::{
    FutureExt as _,
    future::{BoxFuture, try_join_all},
};
use rustix::process::Signal;

use super::{Reply, Resp};
use crate::{
    Server, Snapshot, SteppedClock, Stop, Verdict,
    directory::{CA, Directory, SERVER},
    machine::find,
    process::Launch,
    server::{Kind, Ports},
    wait::until,
};

/// File names in the server's directory.
const CONFIG: &str = "redis.conf";
const SOCKET: &str = "redis.sock";

/// The files in which a server keeps data: an image, and a journal in a subdirectory.
const IMAGE: &str = "dump.rdb";
const JOURNAL: &str = "appendonlydir";

const TAKE: &str = r#"
mkdir data || exit
for one in dump.rdb appendonlydir; do
  if [ -e "$1/$one" ]; then cp -Rp -- "$1/$one" data || exit; fi
done
"#;

const PUT: &str = r#"cp -Rp data/. "$1""#;

/// One Redis server.
pub type RedisServer = Server<Options>;

static KIND: Kind<Options> =
    Kind { name: "redis-server", prepare, launch, is_ready, stop: Signal::TERM };

/// The role of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Part {
    #[default]
    Alone,
    Cluster,
    Sentinel,
}

/// The options of a Redis server: each choice adds a line of configuration.
#[derive(Clone, Debug, Default)]
pub struct Options {
    part: Part,
    lines: Vec<String>,
    pub(super) password: Option<String>,
    persistence: Persistence,
    socket: bool,
    tls: bool,
    clock: Option<SteppedClock>,
}

/// The data that a Redis server keeps across a restart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Persistence {
    /// Nothing.
    #[default]
    None,
    /// Every acknowledged write: an append-only file, synced with each write.
    AofAlways,
}

impl Options {
    /// Returns the options of a server without persistence and without a password.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a line of `redis.conf`, such as `maxmemory 2mb` or `user alice on >secret ~* +@all`.
    #[must_use]
    pub fn with_config(mut self, line: &str) -> Self {
        self.lines.push(line.to_owned());
        self
    }

    /// Requires a password from all clients. It must consist of letters and digits.
    #[must_use]
    pub fn with_password(mut self, password: &str) -> Self {
        self.password = Some(password.to_owned());
        self
    }

    /// Sets the data that the server keeps across a restart.
    #[must_use]
    pub fn with_persistence(mut self, persistence: Persistence) -> Self {
        self.persistence = persistence;
        self
    }

    /// Makes the server listen on a Unix socket too.
    #[must_use]
    pub fn with_socket(mut self) -> Self {
        self.socket = true;
        self
    }

    /// Makes the server listen for TLS too, on another port and with a certificate that is created
    /// for it. With `tls-auth-clients yes` as a line of configuration, clients must present a
    /// certificate.
    #[must_use]
    pub fn with_tls(mut self) -> Self {
        self.tls = true;
        self
    }

    /// Makes the server a replica of the server at this address, which may be the address of a
    /// [`Proxy`](crate::Proxy).
    #[must_use]
    pub fn replica_of(self, address: &str) -> Self {
        self.with_config(&format!("replicaof {}", address.replace(':', " ")))
    }

    /// Makes the server use this wall clock, also after a restart.
    #[must_use]
    pub fn with_clock(mut self, clock: &SteppedClock) -> Self {
        self.clock = Some(clock.clone());
        self
    }

    /// Returns the part of a URL before the host.
    pub(super) fn user_info(&self) -> String {
        self.password.as_ref().map(|password| format!(":{password}@")).unwrap_or_default()
    }
}

fn prepare(_: &Options) -> BoxFuture<'_, Result<Directory, Stop>> {
    async { Directory::new("dlock-redis-", None, "") }.boxed()
}

/// Redis writes into its configuration after a failover, so it is written once and not at a
/// restart.
fn launch(directory: &Directory, options: &Options, ports: Ports) -> Result<Launch, Stop> {
    let program = program()?;
    if options.tls {
        directory.certify()?;
    }
    directory.write(CONFIG, &(config(options, directory.path(), ports).join("\n") + "\n"))?;
    let args: &[&str] = match options.part {
        Part::Sentinel => &[CONFIG, "--sentinel"],
        Part::Alone | Part::Cluster => &[CONFIG],
    };
    Ok(directory.launch(&program, args).with_clock(options.clock.as_ref()))
}

/// Returns the lines of the configuration.
fn config(options: &Options, directory: &Path, ports: Ports) -> Vec<String> {
    let directory = directory.display();
    let mut lines = vec![
        "bind 127.0.0.1".to_owned(),
        "protected-mode no".to_owned(),
        format!("port {}", ports.clients),
        format!("dir \"{directory}\""),
    ];
    if options.part != Part::Sentinel {
        // Replicas sync at once instead of waiting for more replicas.
        let fast = ["save \"\"", "repl-diskless-sync yes", "repl-diskless-sync-delay 0"];
        lines.extend(fast.map(str::to_owned));
        lines.push(match options.persistence {
            Persistence::None => "appendonly no".to_owned(),
            Persistence::AofAlways => "appendonly yes\nappendfsync always".to_owned(),
        });
    }
    if options.part == Part::Cluster {
        lines.push(format!("cluster-enabled yes\ncluster-port {}", ports.peers));
    }
    if options.socket {
        lines.push(format!("unixsocket \"{directory}/{SOCKET}\""));
    }
    if options.tls {
        let (certificate, key) = SERVER;
        lines.push(format!("tls-port {}\ntls-auth-clients no", ports.tls));
        lines.push(format!("tls-ca-cert-file {}\ntls-cert-file {certificate}", CA));
        lines.push(format!("tls-key-file {key}"));
    }
    if let Some(password) = &options.password {
        lines.push(format!("requirepass {password}\nmasterauth {password}"));
    }
    lines.extend(options.lines.iter().cloned());
    lines
}

/// Returns the path of the server's program.
fn program() -> Result<PathBuf, Stop> {
    match std::env::var("DLOCK_TEST_REDIS_SERVER") {
        Ok(path) => find(&path).ok_or_else(|| {
            Stop::missing(format!("DLOCK_TEST_REDIS_SERVER is {path}, which does not exist"))
        }),
        Err(_) => find("redis-server").ok_or_else(|| {
            Stop::missing("redis-server is not installed: apt-get install redis-server")
        }),
    }
}

fn is_ready(server: &RedisServer) -> BoxFuture<'_, Verdict> {
    async {
        // Another server may have taken this port first, and would answer too.
        let info = server.info("server").await?;
        let pid = server.pid().unwrap_or_default();
        if !info.lines().any(|line| line == format!("process_id:{pid}")) {
            return Err(Stop::failed("another server answers"));
        }
        server.command(&["PING"]).await?.ok().map(|_| ())
    }
    .boxed()
}

impl RedisServer {
    /// Starts a server and waits until it answers.
    ///
    /// # Errors
    /// [`Stop::missing`] if Redis is not installed.
    pub async fn start(options: &Options) -> Result<Self, Stop> {
        Self::start_as(&KIND, options).await
    }

    pub(super) async fn start_part(part: Part, options: &Options) -> Result<Self, Stop> {
        Self::start(&Options { part, ..options.clone() }).await
    }

    /// Returns the URL for clients: `redis://127.0.0.1:port`, with the password if there is one.
    pub fn url(&self) -> String {
        format!("redis://{}{}", self.options.user_info(), self.address())
    }

    /// Returns the Unix socket that the server listens on, if it was
    /// [configured](Options::with_socket).
    pub fn socket(&self) -> Option<PathBuf> {
        self.options.socket.then(|| self.directory().join(SOCKET))
    }

    /// Returns the URL for clients that use TLS, `rediss://127.0.0.1:port`, if it was
    /// [configured](Options::with_tls).
    pub fn tls_url(&self) -> Option<String> {
        let url = format!("rediss://{}127.0.0.1:{}", self.options.user_info(), self.ports.tls);
        self.options.tls.then_some(url)
    }

    /// Runs a command over a new connection. The answer may be an error.
    ///
    /// # Errors
    /// If no answer arrives.
    pub async fn command(&self, words: &[&str]) -> Result<Reply, Stop> {
        self.connect().await?.command(words).await
    }

    /// Opens a connection, authenticated if the server has a password.
    ///
    /// # Errors
    /// If no connection can be opened.
    pub async fn connect(&self) -> Result<Resp, Stop> {
        let mut connection = Resp::connect(&self.address()).await?;
        if let Some(password) = &self.options.password {
            connection.command(&["AUTH", password]).await?.ok()?;
        }
        Ok(connection)
    }

    /// Returns the keys that match, in order.
    ///
    /// # Errors
    /// If no answer arrives.
    pub async fn keys(&self, pattern: &str) -> Result<Vec<String>, Stop> {
        let mut keys = self.command(&["KEYS", pattern]).await?.ok()?.texts()?;
        keys.sort();
        Ok(keys)
    }

    /// Removes all scripts from the server, as a restart or a failover does.
    ///
    /// # Errors
    /// If no answer arrives.
    pub async fn flush_scripts(&self) -> Verdict {
        self.command(&["SCRIPT", "FLUSH", "SYNC"]).await?.ok().map(|_| ())
    }

    /// Closes the connections of all clients, including subscribers. Returns their number.
    ///
    /// # Errors
    /// If no answer arrives.
    pub async fn kill_clients(&self) -> Result<i64, Stop> {
        let mut connection = self.connect().await?;
        let mut killed = 0;
        for kind in ["normal", "pubsub"] {
            let kill = ["CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes"];
            killed += connection.command(&kill).await?.ok()?.int()?;
        }
        Ok(killed)
    }

    /// Returns the number of connected clients, including subscribers, without this connection and
    /// without replicas.
    ///
    /// # Errors
    /// If no answer arrives.
    pub async fn connections(&self) -> Result<usize, Stop> {
        let mut connection = self.connect().await?;
        let mut count = 0;
        for kind in ["normal", "pubsub"] {
            let list = connection.command(&["CLIENT", "LIST", "TYPE", kind]).await?;
            count += list.ok()?.text()?.lines().count();
        }
        Ok(count.saturating_sub(1))
    }

    /// Returns a section of the answer to `INFO`.
    ///
    /// # Errors
    /// If no answer arrives.
    pub async fn info(&self, section: &str) -> Result<String, Stop> {
        self.command(&["INFO", section]).await?.ok()?.text()
    }

    /// Returns the position in the stream of changes, in bytes: what the server wrote as a master,
    /// or has received as a replica. The difference of the two is the replica's lag.
    ///
    /// # Errors
    /// If no answer arrives.
    pub async fn replication_offset(&self) -> Result<u64, Stop> {
        let info = self.info("replication").await?;
        let field = |name: &str| info.lines().find_map(|line| line.strip_prefix(name));
        let offset = field("slave_repl_offset:").or_else(|| field("master_repl_offset:"));
        Ok(offset.ok_or_else(|| Stop::failed(format!("no offset in {info}")))?.parse()?)
    }

    /// Waits until the server is a replica that has all changes of this master.
    ///
    /// # Errors
    /// If this does not happen in time.
    pub async fn until_in_sync_with(&self, master: &Self) -> Verdict {
        until("the replica is in sync", || async {
            let info = self.info("replication").await?;
            let up = info.lines().any(|line| line == "master_link_status:up");
            let (has, all) = (self.replication_offset().await?, master.replication_offset().await?);
            match up && has >= all {
                true => Ok(()),
                false => Err(Stop::failed(format!("{has} of {all}, linked: {up}"))),
            }
        })
        .await
    }

    /// Pauses the server and copies the data that it has at this moment, as a backup would. This
    /// works too for a server without persistence. If the future is dropped before it completes,
    /// the server may stay [paused](Self::pause).
    ///
    /// # Errors
    /// If the data can't be copied, or the server was killed.
    pub async fn snapshot(&self) -> Result<Snapshot, Stop> {
        let copy = self.directory.beside("dlock-snapshot-")?;
        if self.options.persistence == Persistence::None {
            self.command(&["SAVE"]).await?.ok()?;
            let copied = Snapshot::make(copy, self.directory(), TAKE).await;
            self.forget_image()?;
            return copied;
        }
        // The log contains every write that the server acknowledged.
        self.pause()?;
        let copied = Snapshot::make(copy, self.directory(), TAKE).await;
        self.resume()?;
        copied
    }

    /// Kills the server if it runs, and restarts it on the same port with the data of the snapshot,
    /// as from an old backup.
    ///
    /// # Errors
    /// As for [`Self::restart`], and if the snapshot is that of another server.
    pub async fn restart_from(&self, snapshot: &Snapshot) -> Verdict {
        self.lose()?;
        snapshot.restore(self.directory(), PUT).await?;
        self.restart().await?;
        match self.options.persistence {
            Persistence::None => self.forget_image(),
            Persistence::AofAlways => Ok(()),
        }
    }

    fn lose(&self) -> Verdict {
        self.kill();
        self.forget_image()?;
        let log = self.directory().join(JOURNAL);
        if log.exists() {
            fs::remove_dir_all(log)?;
        }
        Ok(())
    }

    fn forget_image(&self) -> Verdict {
        let image = self.directory().join(IMAGE);
        if image.exists() {
            fs::remove_file(image)?;
        }
        Ok(())
    }
}

/// Independent masters. They end when this value is dropped.
#[derive(Debug)]
pub struct RedisMasters {
    servers: Vec<RedisServer>,
}

impl RedisMasters {
    /// Starts `count` masters.
    ///
    /// # Errors
    /// [`Stop::missing`] if Redis is not installed.
    pub async fn start(count: usize, options: &Options) -> Result<Self, Stop> {
        let servers = try_join_all((0..count).map(|_| RedisServer::start(options))).await?;
        Ok(Self { servers })
    }

    /// Returns the masters, always in the same order.
    pub fn servers(&self) -> &[RedisServer] {
        &self.servers
    }

    /// Returns the URL for clients: `redis+quorum://a,b,c`.
    pub fn url(&self) -> String {
        url("redis+quorum", &self.servers)
    }

    /// Returns the keys that match on each master, in the order of the masters.
    ///
    /// # Errors
    /// If one of them does not answer.
    pub async fn keys(&self, pattern: &str) -> Result<Vec<Vec<String>>, Stop> {
        try_join_all(self.servers.iter().map(|server| server.keys(pattern))).await
    }
}

/// Returns a URL with the addresses of all these servers.
pub(super) fn url(scheme: &str, servers: &[RedisServer]) -> String {
    let addresses: Vec<String> = servers.iter().map(RedisServer::address).collect();
    let user_info = servers.first().map(|server| server.options.user_info()).unwrap_or_default();
    format!("{scheme}://{user_info}{}", addresses.join(","))
}
