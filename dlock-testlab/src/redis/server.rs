//! One Redis server.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use tempfile::TempDir;
use tokio::time::sleep;

use super::{
    Options, Reply, Resp,
    config::{CONFIG, Part, Ports, SOCKET, config, program},
};
use crate::{Stop, Verdict, daemon::Daemon, launch::Launch, tls, wait::until};

/// How often a port may be taken by somebody else before the server has it.
const ATTEMPTS: usize = 20;

/// How long to wait for a port that somebody else has and that must be this one.
const TAKEN: Duration = Duration::from_millis(250);

/// One Redis server, which dies with this value.
#[derive(Debug)]
pub struct RedisServer {
    // Before the directory: it must have ended when that goes.
    daemon: Daemon,
    directory: TempDir,
    ports: Ports,
    options: Options,
}

impl RedisServer {
    /// Starts a server and waits until it answers.
    ///
    /// # Errors
    /// [`Stop::missing`] when Redis is not installed.
    pub async fn start(options: &Options) -> Result<Self, Stop> {
        Self::start_as(Part::Alone, options).await
    }

    pub(super) async fn start_as(part: Part, options: &Options) -> Result<Self, Stop> {
        let program = program()?;
        for _ in 0..ATTEMPTS {
            let server = Self::spawn(&program, part, options)?;
            if server.answers().await? {
                return Ok(server);
            }
        }
        Err(Stop::failed(format!("each of {ATTEMPTS} free ports was taken before redis had it")))
    }

    fn spawn(program: &Path, part: Part, options: &Options) -> Result<Self, Stop> {
        let directory = tempfile::Builder::new().prefix("dlock-redis-").tempdir()?;
        let ports = Ports::free()?;
        if options.tls {
            tls::generate(directory.path())?;
        }
        let config = config(part, options, directory.path(), ports);
        std::fs::write(directory.path().join(CONFIG), config.join("\n") + "\n")?;
        let args: &[&str] = match part {
            Part::Sentinel => &[CONFIG, "--sentinel"],
            Part::Alone | Part::Cluster => &[CONFIG],
        };
        let launch = Launch::new(program, args, directory.path());
        let daemon = Daemon::start(launch.with_clock(options.clock.as_ref()))?;
        Ok(Self { daemon, directory, ports, options: options.clone() })
    }

    /// Waits until it answers; `false` when somebody else has its port.
    async fn answers(&self) -> Result<bool, Stop> {
        let ended = until("redis-server starts", || async {
            if let Some(status) = self.daemon.ended()? {
                return Ok(Some(status));
            }
            // Another server may have been quicker on this port, and would answer, too.
            let info = self.info("server").await?;
            let pid = self.pid().unwrap_or_default();
            if !info.lines().any(|line| line == format!("process_id:{pid}")) {
                return Err(Stop::failed("another server answers"));
            }
            self.command(&["PING"]).await?.ok()?;
            Ok(None)
        });
        let Some(status) = ended.await? else {
            return Ok(true);
        };
        let log = self.daemon.log();
        match log.contains("Address already in use") {
            true => Ok(false),
            false => Err(Stop::failed(format!("redis-server ended: {status}\n{log}"))),
        }
    }

    /// The port it listens on, which a restart does not change.
    pub fn port(&self) -> u16 {
        self.ports.clients
    }

    /// Where it listens: `127.0.0.1:port`.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port())
    }

    /// Where a client finds it: `redis://127.0.0.1:port`, with the password if there is one.
    pub fn url(&self) -> String {
        format!("redis://{}{}", self.options.user_info(), self.address())
    }

    /// Where its data, configuration and log are.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// The Unix socket it listens on, if it was [asked for](Options::with_socket).
    pub fn socket(&self) -> Option<PathBuf> {
        self.options.socket.then(|| self.directory().join(SOCKET))
    }

    /// Where a client finds it over TLS, if that was [asked for](Options::with_tls):
    /// `rediss://127.0.0.1:port`.
    pub fn tls_url(&self) -> Option<String> {
        let url = format!("rediss://{}127.0.0.1:{}", self.options.user_info(), self.ports.tls);
        self.options.tls.then_some(url)
    }

    /// The certificate of the authority that signed the server's and the client's, in PEM.
    pub fn ca(&self) -> Option<PathBuf> {
        self.options.tls.then(|| tls::ca(self.directory()))
    }

    /// A certificate for a client and its key, in PEM.
    pub fn client_certificate(&self) -> Option<(PathBuf, PathBuf)> {
        self.options.tls.then(|| tls::client(self.directory()))
    }

    /// Its process id; `None` while it is killed.
    pub fn pid(&self) -> Option<u32> {
        self.daemon.pid()
    }

    /// Stops it where it stands: connections stay, nothing is answered. It is
    /// stopped when this returns.
    ///
    /// # Errors
    /// When it was killed, or is not stopped in the end.
    pub fn pause(&self) -> Verdict {
        self.daemon.pause()
    }

    /// Lets it go on.
    ///
    /// # Errors
    /// When it was killed.
    pub fn resume(&self) -> Verdict {
        self.daemon.resume()
    }

    /// Kills it without a chance to clean up. It has ended when this returns.
    pub fn kill(&self) {
        self.daemon.kill();
    }

    /// Kills it if it runs, and starts it again on the same port and directory. Waits until it
    /// answers.
    ///
    /// # Errors
    /// When it does not start, or somebody else keeps its port.
    pub async fn restart(&self) -> Verdict {
        self.kill();
        for _ in 0..ATTEMPTS {
            self.daemon.restart()?;
            if self.answers().await? {
                return Ok(());
            }
            sleep(TAKEN).await;
        }
        Err(Stop::failed(format!("somebody else keeps the port {}", self.port())))
    }

    /// Has it do a command, over a connection of its own. The answer may be an error.
    ///
    /// # Errors
    /// When no answer comes.
    pub async fn command(&self, words: &[&str]) -> Result<Reply, Stop> {
        self.connect().await?.command(words).await
    }

    /// A connection of its own, with the password given.
    ///
    /// # Errors
    /// When there is none to be had.
    pub async fn connect(&self) -> Result<Resp, Stop> {
        let mut connection = Resp::connect(&self.address()).await?;
        if let Some(password) = &self.options.password {
            connection.command(&["AUTH", password]).await?.ok()?;
        }
        Ok(connection)
    }

    /// The keys that match, in order.
    ///
    /// # Errors
    /// When no answer comes.
    pub async fn keys(&self, pattern: &str) -> Result<Vec<String>, Stop> {
        let mut keys = self.command(&["KEYS", pattern]).await?.ok()?.texts()?;
        keys.sort();
        Ok(keys)
    }

    /// Forgets all scripts, as a restart or a failover does.
    ///
    /// # Errors
    /// When no answer comes.
    pub async fn flush_scripts(&self) -> Verdict {
        self.command(&["SCRIPT", "FLUSH", "SYNC"]).await?.ok().map(|_| ())
    }

    /// Closes the connections of all clients, also of those that subscribed. How many there were.
    ///
    /// # Errors
    /// When no answer comes.
    pub async fn kill_clients(&self) -> Result<i64, Stop> {
        let mut connection = self.connect().await?;
        let mut killed = 0;
        for kind in ["normal", "pubsub"] {
            let kill = ["CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes"];
            killed += connection.command(&kill).await?.ok()?.int()?;
        }
        Ok(killed)
    }

    /// How many clients are connected, also those that subscribed, without whoever asks and without
    /// replicas.
    ///
    /// # Errors
    /// When no answer comes.
    pub async fn connections(&self) -> Result<usize, Stop> {
        let mut connection = self.connect().await?;
        let mut count = 0;
        for kind in ["normal", "pubsub"] {
            let list = connection.command(&["CLIENT", "LIST", "TYPE", kind]).await?;
            count += list.ok()?.text()?.lines().count();
        }
        Ok(count.saturating_sub(1))
    }

    /// A section of what it says about itself.
    ///
    /// # Errors
    /// When no answer comes.
    pub async fn info(&self, section: &str) -> Result<String, Stop> {
        self.command(&["INFO", section]).await?.ok()?.text()
    }

    /// The port that cluster nodes talk to each other on.
    pub(super) fn bus(&self) -> u16 {
        self.ports.bus
    }

    pub(super) fn options(&self) -> &Options {
        &self.options
    }
}
