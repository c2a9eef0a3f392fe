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

/// The number of attempts to start on another port if the port was taken.
const ATTEMPTS: usize = 20;

/// The pause before a server retries a fixed port that another process has.
const TAKEN: Duration = Duration::from_millis(250);

/// One Redis server. It ends when this value is dropped.
#[derive(Debug)]
pub struct RedisServer {
    // Declared before the directory: the process must have ended when the directory is removed.
    daemon: Daemon,
    directory: TempDir,
    ports: Ports,
    options: Options,
}

impl RedisServer {
    /// Starts a server and waits until it answers.
    ///
    /// # Errors
    /// [`Stop::missing`] if Redis is not installed.
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

    /// Waits until the server answers; returns `false` if another process has its port.
    async fn answers(&self) -> Result<bool, Stop> {
        let ended = until("redis-server starts", || async {
            if let Some(status) = self.daemon.ended()? {
                return Ok(Some(status));
            }
            // Another server may have taken this port first, and would answer too.
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

    /// Returns the last line of its log that contains `what`, or `what` itself.
    pub(super) fn last_of(&self, what: &str) -> String {
        self.daemon.last_of(what)
    }

    /// Returns the port that the server listens on. A restart does not change it.
    pub fn port(&self) -> u16 {
        self.ports.clients
    }

    /// Returns the address that the server listens on: `127.0.0.1:port`.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port())
    }

    /// Returns the URL for clients: `redis://127.0.0.1:port`, with the password if there is one.
    pub fn url(&self) -> String {
        format!("redis://{}{}", self.options.user_info(), self.address())
    }

    /// Returns the directory of the server's data, configuration and log.
    pub fn directory(&self) -> &Path {
        self.directory.path()
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

    /// Returns the certificate of the authority that signed the certificates of the server and of
    /// the client, in PEM.
    pub fn ca(&self) -> Option<PathBuf> {
        self.options.tls.then(|| tls::ca(self.directory()))
    }

    /// Returns a certificate for a client and its key, in PEM.
    pub fn client_certificate(&self) -> Option<(PathBuf, PathBuf)> {
        self.options.tls.then(|| tls::client(self.directory()))
    }

    /// Returns the process id; `None` while the server is killed.
    pub fn pid(&self) -> Option<u32> {
        self.daemon.pid()
    }

    /// Pauses the server: connections stay open and get no answers. The process is stopped when
    /// this returns.
    ///
    /// # Errors
    /// If the server was killed, or does not stop.
    pub fn pause(&self) -> Verdict {
        self.daemon.pause()
    }

    /// Continues a paused server.
    ///
    /// # Errors
    /// If the server was killed.
    pub fn resume(&self) -> Verdict {
        self.daemon.resume()
    }

    /// Kills the server without a chance to clean up. It has ended when this returns.
    pub fn kill(&self) {
        self.daemon.kill();
    }

    /// Kills the server if it runs, and restarts it on the same port and directory. Waits until it
    /// answers.
    ///
    /// # Errors
    /// If the server does not start, or another process keeps its port.
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

    /// Returns the port of the cluster bus, which nodes use among themselves.
    pub(super) fn bus(&self) -> u16 {
        self.ports.bus
    }

    pub(super) fn options(&self) -> &Options {
        &self.options
    }
}
