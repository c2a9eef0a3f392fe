//! The command that runs under the lock.
//!
//! Signals go to its process id only while it has not been waited for, so that the id is its own.

use std::{
    ffi::OsString,
    io::{self, IsTerminal},
    os::unix::process::ExitStatusExt,
    process::ExitStatus,
    time::Duration,
};

use dlock::Guard;
use rustix::process::{Pid, Signal, kill_process, kill_process_group, test_kill_process_group};
use tokio::{
    process::{Child as Process, Command},
    time,
};

use crate::failure::{Failure, code};

/// How often to look whether what the command has started has ended.
const LOOK: Duration = Duration::from_millis(50);

pub(super) struct Child {
    process: Process,
    /// Of the process, and of its group if it leads one.
    pid: Pid,
    leads_group: bool,
}

impl Child {
    /// Starts it, with the lock in its environment.
    pub(super) fn start(
        command: &[OsString],
        guard: &Guard,
        foreground: bool,
    ) -> Result<Self, Failure> {
        let (program, args) = command
            .split_first()
            .ok_or_else(|| Failure::misuse("there is no command to run: write it after --"))?;
        // In a group of its own it could not read from the terminal.
        let leads_group = !foreground && !io::stdin().is_terminal();
        let mut process = Command::new(program);
        process
            .args(args)
            .env("DLOCK_NAME", guard.name().as_str())
            .env("DLOCK_TOKEN", guard.token().to_string())
            .env_remove("DLOCK_URL");
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

    /// Waits for its end.
    ///
    /// Cancel safe.
    pub(super) async fn wait(&mut self) -> Result<ExitStatus, Failure> {
        self.process.wait().await.map_err(|error| {
            Failure::misuse(format!(
                "waiting for the command failed ({error}): check whether it still runs"
            ))
        })
    }

    /// Passes a signal on that dlock was sent.
    pub(super) fn forward(&self, signal: Signal) {
        if signal == Signal::TSTP {
            self.suspend();
        } else if self.leads_group || !comes_from_terminal(signal) {
            self.send(signal);
        }
    }

    /// Ends it: TERM, and KILL for what is still there after a while.
    pub(super) async fn end(&mut self, kill_after: Duration) -> Result<(), Failure> {
        self.send(Signal::TERM);
        // One that is stopped has to run to end.
        self.send(Signal::CONT);
        let gone = async {
            self.process.wait().await?;
            while self.leads_group && test_kill_process_group(self.pid).is_ok() {
                time::sleep(LOOK).await;
            }
            io::Result::Ok(())
        };
        if time::timeout(kill_after, gone).await.is_err() {
            if self.process.id().is_some() {
                self.send(Signal::KILL);
            } else {
                // It has ended, and its group has not: nobody else can have that id.
                let _ = kill_process_group(self.pid, Signal::KILL);
            }
        }
        self.wait().await.map(drop)
    }

    /// ^Z: the command and dlock stop together, and go on together.
    fn suspend(&self) {
        if self.leads_group {
            self.send(Signal::TSTP);
        }
        // Not the one that is caught. Returns when somebody lets dlock go on.
        let _ = kill_process(rustix::process::getpid(), Signal::STOP);
        if self.leads_group {
            self.send(Signal::CONT);
        }
    }

    /// Sends it to whom signals are for; one that has just ended needs none.
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

/// Whether the terminal has sent this signal to the command as well: it sends to all of the
/// foreground's group.
fn comes_from_terminal(signal: Signal) -> bool {
    if ![Signal::INT, Signal::QUIT, Signal::HUP].contains(&signal) {
        return false;
    }
    let Ok(terminal) = std::fs::File::open("/dev/tty") else { return false };
    rustix::termios::tcgetpgrp(&terminal).is_ok_and(|group| group == rustix::process::getpgrp())
}

/// As a shell has it.
pub(super) fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(code::MISUSE)
}
