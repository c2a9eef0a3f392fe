//! One ZooKeeper server.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use rustix::process::Signal;
use tokio::time::sleep;

use super::{
    Mode, Options,
    config::{Part, Ports, launch},
    programs::Programs,
    words::ask,
};
use crate::{Stop, Verdict, daemon::Daemon, home::Home, tls, wait::until};

/// The number of attempts to start on other ports if a port was taken.
pub(super) const ATTEMPTS: usize = 20;

/// The pause before a server retries a fixed port that another process has.
const TAKEN: Duration = Duration::from_millis(250);

/// One ZooKeeper server. It ends when this value is dropped.
#[derive(Debug)]
pub struct ZooKeeperServer {
    // Declared before the directory: the process must have ended when the directory is removed.
    daemon: Daemon,
    home: Home,
    ports: Ports,
    tls: bool,
    /// The log messages that show that the server has its ports.
    signs: Vec<String>,
}

impl ZooKeeperServer {
    /// Starts a server and waits until it serves.
    ///
    /// # Errors
    /// [`Stop::missing`] if ZooKeeper is not installed.
    pub async fn start(options: &Options) -> Result<Self, Stop> {
        Self::start_with(&Programs::find()?.archived().await, options).await
    }

    pub(super) async fn start_with(programs: &Programs, options: &Options) -> Result<Self, Stop> {
        for _ in 0..ATTEMPTS {
            let server = Self::spawn(programs, &Part::Alone, options)?;
            if server.serves().await? {
                return Ok(server);
            }
        }
        let text = format!("each of {ATTEMPTS} free ports was taken before zookeeper had it");
        Err(Stop::failed(text))
    }

    pub(super) fn spawn(programs: &Programs, part: &Part, options: &Options) -> Result<Self, Stop> {
        let home = Home::new("dlock-zookeeper-", None, "")?;
        let ports = Ports::free()?;
        let daemon = home.start(launch(&home, programs, part, options, ports)?)?;
        // The server loads its data only after it has the port for clients; without the port it
        // ends.
        let mut signs = vec!["Snapshot loaded in".to_owned()];
        if options.tls {
            signs.push(format!("bound to port {}", ports.tls));
        }
        if matches!(part, Part::Node(..)) {
            // Without its election port, the server takes part in an election and ends some time
            // later.
            signs.push("is accepting connections now, my election bind port".to_owned());
        }
        Ok(Self { daemon, home, ports, tls: options.tls, signs })
    }

    /// Waits until the server serves; returns `false` if another process has one of its ports.
    pub(super) async fn serves(&self) -> Result<bool, Stop> {
        let ended = until("zookeeper starts", || async {
            match self.daemon.ended()? {
                None => self.is_ready().await.map(|()| None),
                ended => Ok(ended),
            }
        });
        let Some(status) = ended.await? else {
            return Ok(true);
        };
        let log = self.daemon.log();
        match self.daemon.has_printed("Address already in use") {
            true => Ok(false),
            false => Err(Stop::failed(format!("zookeeper ended: {status}\n{log}"))),
        }
    }

    async fn is_ready(&self) -> Verdict {
        // Another server may have taken a port first, and would answer too.
        if let Some(missing) = self.signs.iter().find(|sign| !self.daemon.has_printed(sign)) {
            return Err(Stop::failed(format!("no word of: {missing}\n{}", self.daemon.log())));
        }
        match self.mode().await? {
            mode if mode.serves() => Ok(()),
            mode => Err(Stop::failed(format!("{mode:?}\n{}", self.daemon.log()))),
        }
    }

    /// Returns the port that the server listens on. A restart does not change it.
    pub fn port(&self) -> u16 {
        self.ports.clients
    }

    /// Returns the address that the server listens on: `127.0.0.1:port`.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port())
    }

    /// Returns the address for TLS, `127.0.0.1:port`, if it was [configured](Options::with_tls).
    pub fn tls_address(&self) -> Option<String> {
        self.tls.then(|| format!("127.0.0.1:{}", self.ports.tls))
    }

    /// Returns the certificate of the authority that signed the certificates of the server and of
    /// the client, in PEM.
    pub fn ca(&self) -> Option<PathBuf> {
        self.tls.then(|| tls::ca(self.directory()))
    }

    /// Returns a certificate for a client and its key, in PEM.
    pub fn client_certificate(&self) -> Option<(PathBuf, PathBuf)> {
        self.tls.then(|| tls::client(self.directory()))
    }

    /// Returns the directory of the server's data, configuration and log.
    pub fn directory(&self) -> &Path {
        self.home.path()
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

    /// Shuts the server down and waits until it has ended. Its sessions continue.
    ///
    /// # Errors
    /// If the server was killed, or does not end.
    pub async fn stop(&self) -> Verdict {
        self.daemon.resume()?;
        self.daemon.signal(Signal::TERM)?;
        until("the server stops", || async {
            match self.daemon.ended()? {
                Some(_) => Ok(()),
                None => Err(Stop::failed("it still runs")),
            }
        })
        .await
    }

    /// Kills the server if it runs, and restarts it on the same ports and data. Waits until it
    /// serves; in an ensemble it serves once there is a leader.
    ///
    /// # Errors
    /// If the server does not start, or another process keeps its port.
    pub async fn restart(&self) -> Verdict {
        self.kill();
        for _ in 0..ATTEMPTS {
            self.daemon.restart()?;
            if self.serves().await? {
                return Ok(());
            }
            sleep(TAKEN).await;
        }
        Err(Stop::failed(format!("somebody else keeps a port of {}", self.address())))
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
