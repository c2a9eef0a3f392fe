//! A running server process.

use std::{
    fs::File,
    io::Write,
    os::unix::process::CommandExt,
    process::{Child, ChildStdout, Command, ExitStatus, Stdio},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, kill_process_group, waitid},
};

use super::{
    launch::{Children, LOG, Launch},
    proc::until_stopped,
    watchdog::Watchdog,
};
use crate::{Stop, Verdict};

/// The shell waits for a line before it starts the server. If the line never comes, the shell ends,
/// so the server never runs without its watchdog. Its processes hold the third descriptor open
/// until the last of them has ended.
const SERVER: &str = r#"read -r _ && exec "$@" </dev/null 3>&1 >&2"#;

/// A backstop for processes that don't end when they are killed.
const BOUND: Timespec = Timespec { tv_sec: 20, tv_nsec: 0 };

#[derive(Debug)]
pub(super) struct Running {
    server: Child,
    id: Pid,
    /// The read end of a pipe; all processes of the server hold the write end.
    held: ChildStdout,
}

impl Running {
    pub(super) fn start(launch: &Launch, watchdog: &Watchdog) -> Result<Self, Stop> {
        let mut command = Command::new("/bin/sh");
        command
            .args(["-c", SERVER, "server"])
            .arg(&launch.program)
            .args(&launch.args)
            .current_dir(&launch.directory)
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(File::create(launch.directory.join(LOG))?);
        if let Some(account) = launch.account {
            command.uid(account.user).gid(account.group);
        }
        if let Some(clock) = &launch.clock {
            command.envs(clock.env());
        }
        let mut server = command.spawn()?;
        let id = i32::try_from(server.id()).ok().and_then(Pid::from_raw);
        let (word, held) = (server.stdin.take(), server.stdout.take());
        let (Some(id), Some(mut word), Some(held)) = (id, word, held) else {
            return Err(Stop::failed("the server has no id or no pipe"));
        };
        let running = Self { server, id, held };
        let watched = watchdog.watch(running.id());
        match watched.and_then(|()| Ok(word.write_all(b"go\n")?)) {
            Ok(()) => Ok(running),
            Err(stop) => {
                running.end(launch, watchdog);
                Err(stop)
            }
        }
    }

    pub(super) fn id(&self) -> u32 {
        self.server.id()
    }

    /// Whether the process has ended. It is not reaped here, so it keeps its id.
    pub(super) fn has_ended(&self) -> Result<bool, Stop> {
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        Ok(waitid(WaitId::Pid(self.id), look)?.is_some())
    }

    pub(super) fn signal(&self, signal: Signal) -> Verdict {
        Ok(kill_process(self.id, signal)?)
    }

    /// Stops the process and then its children: a stopped process starts no more of them. All are
    /// stopped when this returns.
    pub(super) fn pause(&self, launch: &Launch) -> Verdict {
        self.signal(Signal::STOP)?;
        if !until_stopped(self.id())? {
            return Err(Stop::failed("the server has ended instead of being stopped"));
        }
        for child in self.children(launch)? {
            signal_child(child, Signal::STOP);
            // A child that has ended counts as stopped.
            until_stopped(child.as_raw_nonzero().get().unsigned_abs())?;
        }
        Ok(())
    }

    pub(super) fn resume(&self, launch: &Launch) -> Verdict {
        for child in self.children(launch)? {
            signal_child(child, Signal::CONT);
        }
        self.signal(Signal::CONT)
    }

    /// Kills the processes that still run, and waits until all have ended. Returns how the server
    /// ended.
    pub(super) fn end(mut self, launch: &Launch, watchdog: &Watchdog) -> Option<ExitStatus> {
        // Each of these fails only for a process that has ended.
        if launch.children == Children::Apart {
            let _ = self.signal(Signal::STOP);
            for child in self.children(launch).unwrap_or_default() {
                signal_child(child, Signal::KILL);
            }
        }
        let _ = kill_process_group(self.id, Signal::KILL);
        let _ = self.signal(Signal::KILL);
        let _ = watchdog.forget();
        let status = self.server.wait().ok();
        self.wait_for_all();
        clear(launch);
        status
    }

    /// Waits until no process holds the pipe. Zombies don't hold it.
    fn wait_for_all(&self) {
        let mut held = [PollFd::new(&self.held, PollFlags::IN)];
        // No process ever writes into it.
        let _ = poll(&mut held, Some(&BOUND));
    }

    /// Returns the children that don't get the signals to the process group.
    fn children(&self, launch: &Launch) -> Result<Vec<Pid>, Stop> {
        if launch.children == Children::InGroup {
            return Ok(Vec::new());
        }
        let output = Command::new("pgrep").args(["-P", &self.id().to_string()]).output();
        let missing = |error| Stop::failed(format!("pgrep, which comes with procps: {error}"));
        let output = output.map_err(missing)?;
        let ids = String::from_utf8_lossy(&output.stdout);
        Ok(ids.lines().filter_map(|id| id.parse().ok().and_then(Pid::from_raw)).collect())
    }
}

/// A child that started processes leads a group with them. A new child may not lead one yet.
fn signal_child(child: Pid, signal: Signal) {
    let _ = kill_process_group(child, signal);
    let _ = kill_process(child, signal);
}

fn clear(launch: &Launch) {
    if !launch.remains.is_empty() {
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", launch.remains]).current_dir(&launch.directory);
        let _ = shell.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    }
}
