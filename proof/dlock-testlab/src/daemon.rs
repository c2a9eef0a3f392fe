//! A server process that can't outlive the test.
//!
//! Dropping the [`Daemon`] kills and reaps the process. If the test process itself is killed, no
//! value is dropped; then a [`Watchdog`] kills the server. Server and watchdog are in process
//! groups of their own, so an interrupt from the terminal does not reach them before the test
//! process has ended.

use std::{path::Path, process::ExitStatus, sync::Arc, time::Duration};

use parking_lot::Mutex;
use rustix::process::Signal;
use tokio::time::sleep;

use super::{home::Home, launch::Launch, running::Running, watchdog::Watchdog};
use crate::{Stop, Verdict};

/// The pause between two checks whether a program has ended.
const POLL: Duration = Duration::from_millis(3);

/// A server process. Its directory belongs to another value, which must outlive this one.
#[derive(Debug)]
pub(super) struct Daemon {
    launch: Launch,
    watchdog: Arc<Watchdog>,
    running: Mutex<Option<Running>>,
}

impl Daemon {
    /// Starts the program, and a watchdog for the program and its directory.
    pub(super) fn start(launch: Launch) -> Result<Self, Stop> {
        let watchdog = Watchdog::over(&launch.directory, launch.remains)?;
        Self::start_watched(launch, Arc::new(watchdog))
    }

    /// Starts the program and registers it with the existing watchdog of its directory.
    pub(super) fn start_watched(launch: Launch, watchdog: Arc<Watchdog>) -> Result<Self, Stop> {
        let daemon = Self { launch, watchdog, running: Mutex::new(None) };
        daemon.restart()?;
        Ok(daemon)
    }

    /// Waits until a program that ends without a signal has ended.
    pub(super) async fn finish(self) -> Verdict {
        loop {
            if let Some(status) = self.status()? {
                let program = self.launch.program.display();
                return match status.success() {
                    true => Ok(()),
                    false => Err(Stop::failed(format!("{program}: {status}\n{}", self.log()))),
                };
            }
            sleep(POLL).await;
        }
    }

    /// Starts the program again with the same arguments if it does not run.
    pub(super) fn restart(&self) -> Verdict {
        let mut running = self.running.lock();
        if running.is_none() {
            *running = Some(Running::start(&self.launch, &self.watchdog)?);
        }
        Ok(())
    }

    /// Returns the working directory of the process.
    pub(super) fn directory(&self) -> &Path {
        &self.launch.directory
    }

    /// Returns the process id while the process runs.
    pub(super) fn pid(&self) -> Option<u32> {
        self.running.lock().as_ref().map(Running::id)
    }

    /// Returns how the process ended, if it has ended.
    pub(super) fn ended(&self) -> Result<Option<String>, Stop> {
        if self.running.lock().is_none() {
            return Ok(Some("it was killed".to_owned()));
        }
        Ok(self.status()?.map(|status| status.to_string()))
    }

    fn status(&self) -> Result<Option<ExitStatus>, Stop> {
        let mut running = self.running.lock();
        let has_ended = match running.as_ref() {
            Some(running) => running.has_ended()?,
            None => return Err(Stop::failed("the server was killed")),
        };
        let ended = running.take_if(|_| has_ended);
        Ok(ended.and_then(|ended| ended.end(&self.launch, &self.watchdog)))
    }

    /// Sends a signal to the process, not to its children.
    pub(super) fn signal(&self, signal: Signal) -> Verdict {
        // The lock is held while the signal is sent: a process that is not reaped keeps its id.
        let running = self.running.lock();
        running.as_ref().ok_or_else(killed)?.signal(signal)
    }

    /// Stops the process and its children with a signal; `resume` continues them.
    pub(super) fn pause(&self) -> Verdict {
        let running = self.running.lock();
        running.as_ref().ok_or_else(killed)?.pause(&self.launch)
    }

    /// Continues the process and its children.
    pub(super) fn resume(&self) -> Verdict {
        let running = self.running.lock();
        running.as_ref().ok_or_else(killed)?.resume(&self.launch)
    }

    /// Kills the process and its children without a chance to clean up, and waits until they have
    /// ended.
    pub(super) fn kill(&self) {
        if let Some(running) = self.running.lock().take() {
            running.end(&self.launch, &self.watchdog);
        }
    }

    /// Returns the last part of the output since the start.
    pub(super) fn log(&self) -> String {
        let text = self.launch.printed();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(12)..].join("\n")
    }

    /// Returns the last line of the output that contains `what`, or `what` itself.
    pub(super) fn last_of(&self, what: &str) -> String {
        let text = self.launch.printed();
        text.lines().rfind(|line| line.contains(what)).unwrap_or(what).to_owned()
    }

    /// Whether the process has printed `what` since its start.
    pub(super) fn has_printed(&self, what: &str) -> bool {
        self.launch.printed().contains(what)
    }
}

impl Home {
    /// Starts a program of this kind.
    pub(super) fn start(&self, launch: Launch) -> Result<Daemon, Stop> {
        Daemon::start_watched(launch, Arc::clone(&self.watchdog))
    }

    /// Runs shell commands in this directory, with `args` as `$1` and so on, and waits until they
    /// end.
    pub(super) async fn run(&self, commands: &str, args: &[&str]) -> Verdict {
        let all = [&["-c", commands, "prepare"], args].concat();
        self.start(self.launch(Path::new("/bin/sh"), &all))?.finish().await
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.kill();
    }
}

fn killed() -> Stop {
    Stop::failed("the server was killed")
}
