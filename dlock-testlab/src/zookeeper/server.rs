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

/// How often a port may be taken by somebody else before the server has it.
pub(super) const ATTEMPTS: usize = 20;

/// How long to wait for a port that somebody else has and that must be this one.
const TAKEN: Duration = Duration::from_millis(250);

/// One ZooKeeper server, which dies with this value.
#[derive(Debug)]
pub struct ZooKeeperServer {
    // Before the directory: it must have ended when that goes.
    daemon: Daemon,
    home: Home,
    ports: Ports,
    tls: bool,
    /// What it prints once it has its ports.
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
        // It loads its data when it listens for clients, or has ended.
        let mut signs = vec!["Snapshot loaded in".to_owned()];
        if options.tls {
            signs.push(format!("bound to port {}", ports.tls));
        }
        if matches!(part, Part::Node(..)) {
            // It takes part in an election without a port for it, and ends some time later.
            signs.push("is accepting connections now, my election bind port".to_owned());
        }
        Ok(Self { daemon, home, ports, tls: options.tls, signs })
    }

    /// Waits until it serves; `false` when somebody else has one of its ports.
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
        // Another server may have been quicker on a port, and would answer, too.
        if let Some(missing) = self.signs.iter().find(|sign| !self.daemon.has_printed(sign)) {
            return Err(Stop::failed(format!("no word of: {missing}\n{}", self.daemon.log())));
        }
        match self.mode().await? {
            mode if mode.serves() => Ok(()),
            mode => Err(Stop::failed(format!("{mode:?}\n{}", self.daemon.log()))),
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

    /// Where it listens for TLS, if that was [asked for](Options::with_tls): `127.0.0.1:port`.
    pub fn tls_address(&self) -> Option<String> {
        self.tls.then(|| format!("127.0.0.1:{}", self.ports.tls))
    }

    /// The certificate of the authority that signed the server's and the client's, in PEM.
    pub fn ca(&self) -> Option<PathBuf> {
        self.tls.then(|| tls::ca(self.directory()))
    }

    /// A certificate for a client and its key, in PEM.
    pub fn client_certificate(&self) -> Option<(PathBuf, PathBuf)> {
        self.tls.then(|| tls::client(self.directory()))
    }

    /// Where its data, configuration and log are.
    pub fn directory(&self) -> &Path {
        self.home.path()
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
    /// If the server was killed.
    pub fn resume(&self) -> Verdict {
        self.daemon.resume()
    }

    /// Kills it without a chance to clean up. It has ended when this returns.
    pub fn kill(&self) {
        self.daemon.kill();
    }

    /// Has it end in an orderly way, and waits for that. Sessions go on without it.
    ///
    /// # Errors
    /// When it was killed, or does not end.
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

    /// Kills it if it runs, and starts it again on the same ports and data. Waits until it serves;
    /// in an ensemble it does so once it has a leader.
    ///
    /// # Errors
    /// When it does not start, or somebody else keeps its port.
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

    /// What it does.
    ///
    /// # Errors
    /// If no answer arrives.
    pub async fn mode(&self) -> Result<Mode, Stop> {
        Mode::of(&self.four_letter_word("srvr").await?)
    }

    /// What it answers to a four-letter word, such as `dump`, which shows sessions with their
    /// ephemeral nodes, `wchp` with the paths that are watched, or `cons` with the connections.
    ///
    /// # Errors
    /// If no answer arrives.
    pub async fn four_letter_word(&self, word: &str) -> Result<String, Stop> {
        ask(&self.address(), word).await
    }

    /// How many clients are connected and have a session.
    ///
    /// # Errors
    /// If no answer arrives.
    pub async fn connections(&self) -> Result<usize, Stop> {
        // Whoever asks has none.
        Ok(self.four_letter_word("cons").await?.matches("sid=0x").count())
    }
}
