//! The command that runs under the lock.
//!
//! Signals are sent to its process id only until the process has been reaped: after that, another
//! process may have the id.
//!
//! As the first process of a container, dlock becomes the parent of each process whose own parent
//! has ended. When such an orphan ends, it stays as a zombie until dlock has waited for it.

use std::{
    ffi::OsString,
    fs,
    io::{self, IsTerminal},
    os::unix::process::ExitStatusExt,
    process::ExitStatus,
    time::Duration,
};

use rustix::process::{Pid, Signal, WaitOptions, kill_process, kill_process_group, waitpid};
use tokio::{
    process::{Child as Process, Command},
    signal::unix::{self, SignalKind},
    time,
};

use super::nested::Environment;
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
        if self.leads_group || !comes_from_terminal(signal) {
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
                reap(self.pid);
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

    /// Handles ^Z: the command and dlock stop together. Returns when another process continues
    /// dlock.
    pub(super) fn suspend(&self) {
        if self.leads_group {
            self.send(Signal::TSTP);
        }
        // Sends STOP, because TSTP is caught.
        let _ = kill_process(rustix::process::getpid(), Signal::STOP);
    }

    /// Lets the command continue after `suspend`.
    pub(super) fn resume(&self) {
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

/// Notices that a child of this process has ended, if it becomes the parent of orphans.
pub(super) struct Orphans(Option<unix::Signal>);

impl Orphans {
    pub(super) fn of_this_process() -> Self {
        let first = std::process::id() == 1;
        Self(first.then(|| unix::signal(SignalKind::child()).ok()).flatten())
    }

    /// Waits until children have ended. Never returns if orphans have another parent.
    ///
    /// Cancel safe.
    pub(super) async fn arrive(&mut self) {
        if let Some(signal) = &mut self.0
            && signal.recv().await.is_some()
        {
            return;
        }
        std::future::pending().await
    }
}

/// Waits for the orphans that have ended, but not for the command: its exit code is still needed.
pub(super) fn reap(command: Pid) {
    for one in processes().filter(|one| one.is_zombie && one.parent == 1 && one.id != command) {
        let _ = waitpid(Some(one.id), WaitOptions::NOHANG);
    }
}

/// Whether a process of this group runs. A zombie does not, and nobody may ever wait for it.
fn group_runs(group: Pid) -> bool {
    if rustix::process::test_kill_process_group(group).is_err() {
        return false;
    }
    let mut any = false;
    for one in processes() {
        any = true;
        if one.group == group.as_raw_nonzero().get() && !one.is_zombie {
            return true;
        }
    }
    // Without /proc there is no difference between the two.
    !any
}

/// A process, as /proc describes it.
struct ProcessEntry {
    id: Pid,
    is_zombie: bool,
    parent: i32,
    group: i32,
}

/// Returns all processes; none if the system has no /proc.
fn processes() -> impl Iterator<Item = ProcessEntry> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| {
        let id = entry.file_name().to_str()?.parse().ok().and_then(Pid::from_raw)?;
        parsed(id, &fs::read_to_string(entry.path().join("stat")).ok()?)
    })
}

/// Parses `ID (NAME) STATE PARENT GROUP ...`. A name may contain anything.
fn parsed(id: Pid, stat: &str) -> Option<ProcessEntry> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace();
    let is_zombie = matches!(fields.next()?, "Z" | "X");
    let mut number = || fields.next()?.parse().ok();
    Some(ProcessEntry { id, is_zombie, parent: number()?, group: number()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_parsed_whatever_its_name_is() {
        let id = Pid::from_raw(7).unwrap();
        let one = parsed(id, "7 (a) Z 9 (b) Z 1 5 0 0 -1").unwrap();
        assert!(one.is_zombie);
        assert_eq!((one.parent, one.group), (1, 5));
        assert!(!parsed(id, "7 (sh) S 1 5 0").unwrap().is_zombie);
        assert!(parsed(id, "").is_none());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_group_of_zombies_does_not_run() {
        use std::{
            os::unix::process::CommandExt as _,
            process::{Command, Stdio},
        };

        let mut child = Command::new("cat").stdin(Stdio::piped()).process_group(0).spawn().unwrap();
        let group = Pid::from_child(&child);
        assert!(group_runs(group));
        drop(child.stdin.take());
        while !processes().any(|one| one.id == group && one.is_zombie) {
            std::thread::yield_now();
        }
        // A signal still reaches the group.
        assert!(rustix::process::test_kill_process_group(group).is_ok());
        assert!(!group_runs(group));
        child.wait().unwrap();
    }
}
