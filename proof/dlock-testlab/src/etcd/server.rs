//! One etcd server.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use rustix::process::Signal;
use tokio::time::sleep;

use super::{
    Options, Role,
    config::{Part, Ports, launch},
    programs::Programs,
};
use crate::{
    Snapshot, Stop, Verdict,
    daemon::Daemon,
    home::Home,
    snapshot::{PUT, TAKE},
    tls,
    wait::until,
};

/// The number of attempts to start on other ports if a port was taken.
pub(super) const ATTEMPTS: usize = 20;

/// The pause before a server retries a fixed port that another process has.
const TAKEN: Duration = Duration::from_millis(250);

/// One etcd server. It ends when this value is dropped.
#[derive(Debug)]
pub struct EtcdServer {
    // Declared before the directory: the process must have ended when the directory is removed.
    daemon: Daemon,
    home: Home,
    ports: Ports,
    pub(super) programs: Programs,
    pub(super) options: Options,
}

impl EtcdServer {
    /// Starts a server and waits until it serves.
    ///
    /// # Errors
    /// [`Stop::missing`] if etcd is not installed.
    pub async fn start(options: &Options) -> Result<Self, Stop> {
        let programs = Programs::find()?;
        for _ in 0..ATTEMPTS {
            let (home, ports) = Self::directory_and_ports()?;
            let server = Self::spawn(&programs, home, ports, Part::Alone, options)?;
            if server.serves().await? {
                server.add_root().await?;
                return Ok(server);
            }
        }
        Err(Stop::failed(format!("each of {ATTEMPTS} free ports was taken before etcd had it")))
    }

    /// Returns a directory and ports for a server.
    pub(super) fn directory_and_ports() -> Result<(Home, Ports), Stop> {
        Ok((Home::new("dlock-etcd-", None, "")?, Ports::free()?))
    }

    pub(super) fn spawn(
        programs: &Programs,
        home: Home,
        ports: Ports,
        part: Part,
        options: &Options,
    ) -> Result<Self, Stop> {
        let daemon = home.start(launch(&home, programs, part, options, ports)?)?;
        let (programs, options) = (programs.clone(), options.clone());
        Ok(Self { daemon, home, ports, programs, options })
    }

    /// Waits until the server serves; returns `false` if another process has one of its ports.
    pub(super) async fn serves(&self) -> Result<bool, Stop> {
        let ended = until("etcd starts", || async {
            match self.daemon.ended()? {
                None => self.is_ready().await.map(|()| None),
                ended => Ok(ended),
            }
        });
        let Some(status) = ended.await? else {
            return Ok(true);
        };
        let log = self.daemon.log();
        match self.daemon.has_printed("address already in use") {
            true => Ok(false),
            false => Err(Stop::failed(format!("etcd ended: {status}\n{log}"))),
        }
    }

    async fn is_ready(&self) -> Verdict {
        // Another server may have taken a port first, and would answer too. This one listens on all
        // its ports before it prints this, and prints it only with a leader.
        if !self.daemon.has_printed("serving client traffic insecurely") {
            return Err(Stop::failed(format!("not ready\n{}", self.daemon.log())));
        }
        match self.role().await? {
            Role::Leader | Role::Follower => Ok(()),
            Role::Leaderless => Err(Stop::failed("it knows no leader")),
        }
    }

    /// Returns the version of the server, such as `3.4.23`.
    pub fn version(&self) -> &str {
        &self.programs.version
    }

    /// Returns the port that the server listens on. A restart does not change it.
    pub fn port(&self) -> u16 {
        self.ports.clients
    }

    /// Returns the address that the server listens on: `127.0.0.1:port`.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port())
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

    /// Returns the certificate of the authority that signed the certificates of the server and of
    /// the client, in PEM.
    pub fn ca(&self) -> Option<PathBuf> {
        self.options.tls.then(|| tls::ca(self.directory()))
    }

    /// Returns a certificate for a client and its key, in PEM.
    pub fn client_certificate(&self) -> Option<(PathBuf, PathBuf)> {
        self.options.tls.then(|| tls::client(self.directory()))
    }

    /// Returns the directory of the server's data and log.
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

    /// Shuts the server down and waits until it has ended. A leader hands its leadership to another
    /// server first.
    ///
    /// # Errors
    /// If the server was killed, or does not end.
    pub async fn stop(&self) -> Verdict {
        self.daemon.resume()?;
        self.daemon.signal(Signal::TERM)?;
        self.until_ended().await
    }

    pub(super) async fn until_ended(&self) -> Verdict {
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
        Err(Stop::failed(format!("another process keeps a port of {}", self.address())))
    }

    /// Copies the data while the server is paused: the copy has what a kill at that moment would
    /// leave.
    ///
    /// # Errors
    /// If the data can't be copied, or the server was killed.
    pub async fn snapshot(&self) -> Result<Snapshot, Stop> {
        self.pause()?;
        let home = self.home.beside("dlock-snapshot-")?;
        let copied = Snapshot::make(home, self.directory(), TAKE).await;
        self.resume()?;
        copied
    }

    /// Kills the server if it runs, and restarts it on the same ports with the data of the snapshot,
    /// as from an old copy of its disk.
    ///
    /// # Errors
    /// As for [`Self::restart`], and if the snapshot is that of another server.
    pub async fn restart_from(&self, snapshot: &Snapshot) -> Verdict {
        self.kill();
        snapshot.restore(self.directory(), PUT).await?;
        self.restart().await
    }
}
