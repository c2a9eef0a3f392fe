//! The parts that all kinds of servers on one port have in common.

use std::{path::Path, time::Duration};

use rustix::process::Signal;
use tokio::time::sleep;

use super::{
    Snapshot,
    daemon::Daemon,
    home::Home,
    launch::Launch,
    port,
    snapshot::{PUT, TAKE, clear},
    wait::until,
};
use crate::{Stop, Verdict};

/// The number of attempts to start on another port if the port was taken.
const ATTEMPTS: usize = 20;

/// The pause before a server retries a fixed port that another process has.
const TAKEN: Duration = Duration::from_millis(250);

/// A server process with its port and its directory.
#[derive(Debug)]
pub(super) struct Instance {
    // Declared before the directory: the process must have ended when the directory is removed.
    daemon: Daemon,
    home: Home,
    port: u16,
    kind: Kind,
}

/// A kind of server.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kind {
    pub(super) name: &'static str,
    /// Whether the server accepts connections. Another server may have the port and accept
    /// connections too.
    pub(super) is_ready: fn(&Daemon) -> bool,
}

impl Instance {
    /// Starts a server in this home on a free port and waits until it accepts connections.
    pub(super) async fn start(
        kind: Kind,
        home: Home,
        launch: impl Fn(&Home, u16) -> Result<Launch, Stop>,
    ) -> Result<Self, Stop> {
        for _ in 0..ATTEMPTS {
            let [port] = port::free()?;
            let daemon = home.start(launch(&home, port)?)?;
            if accepts(kind, &daemon).await? {
                return Ok(Self { daemon, home, port, kind });
            }
        }
        let name = kind.name;
        Err(Stop::failed(format!("each of {ATTEMPTS} free ports was taken before {name} had it")))
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    pub(super) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub(super) fn directory(&self) -> &Path {
        self.home.path()
    }

    pub(super) fn pid(&self) -> Option<u32> {
        self.daemon.pid()
    }

    pub(super) fn pause(&self) -> Verdict {
        self.daemon.pause()
    }

    pub(super) fn resume(&self) -> Verdict {
        self.daemon.resume()
    }

    pub(super) fn kill(&self) {
        self.daemon.kill();
    }

    /// Sends the signal that shuts the server down, and waits until it has ended.
    pub(super) async fn stop(&self, signal: Signal) -> Verdict {
        self.daemon.resume()?;
        self.daemon.signal(signal)?;
        until("the server stops", || async {
            match self.daemon.ended()? {
                Some(_) => Ok(()),
                None => Err(Stop::failed("it still runs")),
            }
        })
        .await
    }

    /// Copies the data while the server is paused: the copy has what a kill at that moment would
    /// leave.
    pub(super) async fn snapshot(&self) -> Result<Snapshot, Stop> {
        let runs = self.pid().is_some();
        if runs {
            self.pause()?;
        }
        let home = self.home.beside("dlock-snapshot-")?;
        let copied = Snapshot::make(home, self.directory(), TAKE).await;
        if runs {
            self.resume()?;
        }
        copied
    }

    /// Kills the server if it runs, and restores its data from the snapshot.
    pub(super) async fn put_back(&self, snapshot: &Snapshot) -> Verdict {
        self.kill();
        snapshot.restore(self.directory(), PUT).await
    }

    /// Kills the server if it runs, and removes all its data. Afterwards it has no data directory.
    pub(super) async fn clear(&self) -> Result<&Home, Stop> {
        self.kill();
        clear(&self.home).await?;
        Ok(&self.home)
    }

    pub(super) async fn restart(&self) -> Verdict {
        self.kill();
        for _ in 0..ATTEMPTS {
            self.daemon.restart()?;
            if accepts(self.kind, &self.daemon).await? {
                return Ok(());
            }
            sleep(TAKEN).await;
        }
        Err(Stop::failed(format!("somebody else keeps the port {}", self.port)))
    }
}

/// Waits until the server accepts connections; returns `false` if another process has its port.
async fn accepts(kind: Kind, daemon: &Daemon) -> Result<bool, Stop> {
    let ended = until(kind.name, || async {
        match daemon.ended()? {
            None if (kind.is_ready)(daemon) => Ok(None),
            None => Err(Stop::failed(format!("not ready\n{}", daemon.log()))),
            ended => Ok(ended),
        }
    });
    let Some(status) = ended.await? else {
        return Ok(true);
    };
    let log = daemon.log();
    match log.contains("Address already in use") {
        true => Ok(false),
        false => Err(Stop::failed(format!("{} ended: {status}\n{log}", kind.name))),
    }
}
