//! One server: its life from the start to the end.

use std::{
    fmt,
    path::{Path, PathBuf},
    time::Duration,
};

use futures_util::future::BoxFuture;
use rustix::process::Signal;
use tokio::time::sleep;

use super::{
    directory::{Directory, PUT, Snapshot, TAKE},
    machine::{Reserved, free_ports},
    process::{Daemon, Launch},
    wait::until,
};
use crate::{Stop, Verdict};

/// The number of attempts to start on other ports if a port was taken.
pub(super) const ATTEMPTS: usize = 20;

/// The pause before a server retries a fixed port that another process has.
const TAKEN: Duration = Duration::from_millis(250);

/// A private server that was started with options of this type. It ends when this value is dropped.
#[derive(Debug)]
pub struct Server<O: 'static> {
    // Declared before the directory: the process must have ended when the directory is removed.
    pub(super) daemon: Daemon,
    pub(super) directory: Directory,
    pub(super) ports: Ports,
    _reserved: Reserved,
    // Boxed, because some are large.
    pub(super) options: Box<O>,
    kind: &'static Kind<O>,
}

/// The ports of a server. Its options decide which of them it uses.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ports {
    pub(super) clients: u16,
    pub(super) tls: u16,
    pub(super) peers: u16,
    pub(super) elections: u16,
}

/// A kind of server.
pub(super) struct Kind<O: 'static> {
    pub(super) name: &'static str,
    /// Creates the directory of a server, with its first data.
    pub(super) prepare: for<'a> fn(&'a O) -> BoxFuture<'a, Result<Directory, Stop>>,
    /// Writes the configuration, and returns the program to run with it.
    pub(super) launch: fn(&Directory, &O, Ports) -> Result<Launch, Stop>,
    /// Fails unless the server serves. Another server may have the port and answer too.
    pub(super) is_ready: for<'a> fn(&'a Server<O>) -> BoxFuture<'a, Verdict>,
    /// Makes the server disconnect its clients and end.
    pub(super) stop: Signal,
}

impl Ports {
    pub(super) fn free() -> Result<(Self, Reserved), Stop> {
        let ([clients, tls, peers, elections], reserved) = free_ports()?;
        Ok((Self { clients, tls, peers, elections }, reserved))
    }
}

impl<O: 'static> fmt::Debug for Kind<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl<O: Clone + Send + Sync + 'static> Server<O> {
    /// Starts a server on free ports and waits until it serves.
    pub(super) async fn start_as(kind: &'static Kind<O>, options: &O) -> Result<Self, Stop> {
        for _ in 0..ATTEMPTS {
            let directory = (kind.prepare)(options).await?;
            let server = Self::spawn(kind, directory, Ports::free()?, options)?;
            if server.serves().await? {
                return Ok(server);
            }
        }
        let name = kind.name;
        Err(Stop::failed(format!("each of {ATTEMPTS} free ports was taken before {name} had it")))
    }

    /// Starts a server in this directory without waiting for it.
    pub(super) fn spawn(
        kind: &'static Kind<O>,
        directory: Directory,
        (ports, reserved): (Ports, Reserved),
        options: &O,
    ) -> Result<Self, Stop> {
        let daemon = directory.start((kind.launch)(&directory, options, ports)?)?;
        let options = Box::new(options.clone());
        Ok(Self { daemon, directory, ports, _reserved: reserved, options, kind })
    }
}

impl<O: Send + Sync + 'static> Server<O> {
    /// Waits until the server serves; returns `false` if another process has one of its ports.
    pub(super) async fn serves(&self) -> Result<bool, Stop> {
        let name = self.kind.name;
        let ended = until(name, || async {
            match self.daemon.ended()? {
                None => (self.kind.is_ready)(self).await.map(|()| None),
                ended => Ok(ended),
            }
        });
        match ended.await? {
            None => Ok(true),
            Some(_) if self.daemon.lost_its_port() => Ok(false),
            Some(status) => {
                Err(Stop::failed(format!("{name} ended: {status}\n{}", self.daemon.log())))
            }
        }
    }

    /// Fails unless the server has printed this since its start.
    pub(super) fn printed(&self, text: &str) -> Verdict {
        match self.daemon.has_printed(text) {
            true => Ok(()),
            false => Err(Stop::failed(format!("no {text:?} in:\n{}", self.daemon.log()))),
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

    /// Returns the certificate of the authority that signed the certificates of the server and of
    /// the client, in PEM, if the server uses TLS.
    pub fn ca(&self) -> Option<PathBuf> {
        self.directory.ca()
    }

    /// Returns a certificate for a client and its key, in PEM, if the server uses TLS.
    pub fn client_certificate(&self) -> Option<(PathBuf, PathBuf)> {
        self.directory.client_certificate()
    }

    /// Returns the directory of the server's data, configuration and log.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Returns the id of the server's first process; `None` while the server is killed.
    pub fn pid(&self) -> Option<u32> {
        self.daemon.pid()
    }

    /// Pauses all processes of the server: connections stay open and get no answers. The processes
    /// are stopped when this returns.
    ///
    /// # Errors
    /// If the server was killed, or does not stop.
    pub fn pause(&self) -> Verdict {
        self.daemon.pause()
    }

    /// Continues the processes of a paused server.
    ///
    /// # Errors
    /// If the server was killed.
    pub fn resume(&self) -> Verdict {
        self.daemon.resume()
    }

    /// Kills all processes of the server without a chance to clean up. They have ended when this
    /// returns.
    pub fn kill(&self) {
        self.daemon.kill();
    }

    /// Shuts the server down: it disconnects all clients and ends in an orderly way. Waits until it
    /// has ended. An etcd server that leads hands its leadership to another one first.
    ///
    /// # Errors
    /// If the server was killed, or does not end.
    pub async fn stop(&self) -> Verdict {
        self.daemon.resume()?;
        self.daemon.signal(self.kind.stop)?;
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
}

/// The options of a server that keeps all its data in one directory.
pub trait DataDirectory {}

impl<O: DataDirectory + Send + Sync + 'static> Server<O> {
    /// Copies the data while the server is paused: the copy has what a kill at that moment would
    /// leave. If the future is dropped before it completes, the server may stay
    /// [paused](Self::pause).
    ///
    /// # Errors
    /// If the data can't be copied.
    pub async fn snapshot(&self) -> Result<Snapshot, Stop> {
        let runs = self.pid().is_some();
        if runs {
            self.pause()?;
        }
        let copy = self.directory.beside("dlock-snapshot-")?;
        let copied = Snapshot::make(copy, self.directory(), TAKE).await;
        if runs {
            self.resume()?;
        }
        copied
    }

    /// Kills the server if it runs, and restarts it on the same ports with the data of the
    /// snapshot, as from an old backup.
    ///
    /// # Errors
    /// As for [`Self::restart`], and if the snapshot is that of another server.
    pub async fn restart_from(&self, snapshot: &Snapshot) -> Verdict {
        self.kill();
        snapshot.restore(self.directory(), PUT).await?;
        self.restart().await
    }
}
