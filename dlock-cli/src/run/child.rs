//! The command that runs under the lock.
//!
//! Signals are sent to its process id only until the process has been reaped: after that, another
//! process may have the id.

use std::{
    ffi::OsString,
    io::{self, IsTerminal},
    os::unix::process::ExitStatusExt,
    process::ExitStatus,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use tokio::{
    process::{Child as Process, Command},
    time,
};

use super::{
    nested::Environment,
    orphans::{self, group_runs},
};
use crate::failure::{Failure, code};

/// The pause between two checks whether the processes that the command started have ended.
const POLL: Duration = Duration::from_millis(50);

pub(super) struct Child {
    process: Process,
    /// The id of the process, and of its group if it leads one.
    pid: Pid,
    leads_group: bool,
}

impl Child {
    /// Starts the command.
    pub(super) fn start(
        command: &[OsString],
        environment: Environment,
        foreground: bool,
    ) -> Result<Self, Failure> {
        let (program, args) = command
            .split_first()
            .ok_or_else(|| Failure::misuse("there is no command to run: write it after --"))?;
        // A process in another group could not read from the terminal.
        let leads_group = !foreground && !io::stdin().is_terminal();
        let mut process = Command::new(program);
        process.args(args);
        for (name, value) in environment {
            match value {
                Some(value) => process.env(name, value),
                None => process.env_remove(name),
            };
        }
        if leads_group {
            process.process_group(0);
        }
        let process = process.spawn().map_err(|error| {
            let program = program.display();
            match error.kind() {
                io::ErrorKind::NotFound => Failure::new(
                    code::NOT_FOUND,
                    format!("{program} was not found: check its name, its interpreter and PATH"),
                ),
                _ => Failure::new(
                    code::CANT_RUN,
                    format!(
                        "{program} can't be run ({error}): check its permissions and its format"
                    ),
                ),
            }
        })?;
        let pid =
            process.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw).ok_or_else(
                || Failure::new(code::CANT_RUN, "the command has no process id: run it again"),
            )?;
        Ok(Self { process, pid, leads_group })
    }

    /// The id of the command, which no other process has before `wait` returns.
    pub(super) fn id(&self) -> Pid {
        self.pid
    }

    /// Waits until the command has ended.
    ///
    /// Cancel safe.
    pub(super) async fn wait(&mut self) -> Result<ExitStatus, Failure> {
        self.process.wait().await.map_err(|error| {
            Failure::misuse(format!(
                "waiting for the command failed ({error}): check whether it still runs"
            ))
        })
    }

    /// Forwards a signal that dlock received.
    pub(super) fn forward(&self, signal: Signal) {
        if signal == Signal::TSTP {
            self.suspend();
        } else if self.leads_group || !comes_from_terminal(signal) {
            self.send(signal);
        }
    }

    /// Ends the command: sends TERM, and KILL to the processes that still run after `kill_after`.
    pub(super) async fn end(&mut self, kill_after: Duration) -> Result<(), Failure> {
        self.send(Signal::TERM);
        // A stopped process has to continue before it can end.
        self.send(Signal::CONT);
        let gone = async {
            self.process.wait().await?;
            while self.leads_group && group_runs(self.pid) {
                orphans::reap(self.pid);
                time::sleep(POLL).await;
            }
            io::Result::Ok(())
        };
        if time::timeout(kill_after, gone).await.is_err() {
            if self.process.id().is_some() {
                self.send(Signal::KILL);
            } else {
                // The process has ended, but its group has not: no other process can have that id.
                let _ = kill_process_group(self.pid, Signal::KILL);
            }
        }
        self.wait().await.map(drop)
    }

    /// Handles ^Z: the command and dlock stop together and continue together.
    fn suspend(&self) {
        if self.leads_group {
            self.send(Signal::TSTP);
        }
        // Sends STOP, because TSTP is caught. Returns when another process continues dlock.
        let _ = kill_process(rustix::process::getpid(), Signal::STOP);
        if self.leads_group {
            self.send(Signal::CONT);
        }
    }

    /// Sends a signal to the group or the process. If the process has just ended, it sends nothing.
    fn send(&self, signal: Signal) {
        if self.process.id().is_none() {
            return;
        }
        let _ = if self.leads_group {
            kill_process_group(self.pid, signal)
        } else {
            kill_process(self.pid, signal)
        };
    }
}

/// Whether the terminal has sent this signal to the command too: it sends to the whole foreground
/// group.
fn comes_from_terminal(signal: Signal) -> bool {
    if ![Signal::INT, Signal::QUIT, Signal::HUP].contains(&signal) {
        return false;
    }
    let Ok(terminal) = std::fs::File::open("/dev/tty") else { return false };
    rustix::termios::tcgetpgrp(&terminal).is_ok_and(|group| group == rustix::process::getpgrp())
}

/// Returns the exit code that a shell would report.
pub(super) fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(code::MISUSE)
}
