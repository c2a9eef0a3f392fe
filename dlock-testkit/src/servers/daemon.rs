//! A server process that can't outlive the test.
//!
//! Dropping the [`Daemon`] kills and reaps the process. When the test process is killed itself,
//! nothing is dropped; then a watchdog does it, a shell that waits for the end of a pipe that only
//! the test process holds. Server and watchdog are in process groups of their own, so an interrupt
//! from the terminal reaches neither before the test process is gone.

use std::{
    fs::File,
    io::Write,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::{Stop, Verdict};

/// The server waits for the watchdog: without the word it ends instead of starting, so there is no
/// moment in which it runs unwatched.
const SERVER: &str = r#"read -r _ && exec "$@" </dev/null"#;

/// Kills the process group `$1` and removes the directory `$2` once the pipe closes. The pause lets
/// the processes end before their directory goes.
const WATCHDOG: &str = r#"read -r _; kill -s KILL -- "-$1"; sleep 0.1; rm -rf -- "$2""#;

/// What the process prints, in its directory.
const LOG: &str = "log";

/// A server process; the directory it works in belongs to somebody else and must outlive it.
#[derive(Debug)]
pub(crate) struct Daemon {
    program: PathBuf,
    args: Vec<String>,
    directory: PathBuf,
    running: Mutex<Option<Running>>,
}

#[derive(Debug)]
struct Running {
    server: Child,
    watchdog: Child,
}

impl Daemon {
    /// Starts the program in the directory.
    pub(crate) fn start(program: &Path, args: &[&str], directory: &Path) -> Result<Self, Stop> {
        let daemon = Self {
            program: program.to_owned(),
            args: args.iter().map(|&arg| arg.to_owned()).collect(),
            directory: directory.to_owned(),
            running: Mutex::new(None),
        };
        daemon.restart()?;
        Ok(daemon)
    }

    /// Starts it again with the same arguments, if it does not run.
    pub(crate) fn restart(&self) -> Verdict {
        let mut running = self.running.lock();
        if running.is_none() {
            *running = Some(Running::start(&self.program, &self.args, &self.directory)?);
        }
        Ok(())
    }

    /// The process id, while it runs.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.running.lock().as_ref().map(|running| running.server.id())
    }

    /// How it ended, if it did.
    pub(crate) fn ended(&self) -> Result<Option<String>, Stop> {
        let mut running = self.running.lock();
        let status = match running.as_mut() {
            Some(running) => running.server.try_wait()?,
            None => return Ok(Some("it was killed".to_owned())),
        };
        if status.is_some() {
            *running = None;
        }
        Ok(status.map(|status| status.to_string()))
    }

    /// Sends a signal to the process itself.
    pub(crate) fn signal(&self, signal: Signal) -> Verdict {
        // Locked throughout: a process that is not reaped keeps its id.
        let running = self.running.lock();
        let running = running.as_ref().ok_or_else(|| Stop::failed("the server was killed"))?;
        Ok(kill_process(id(&running.server)?, signal)?)
    }

    /// Kills it and its children without a chance to clean up, and waits for its end.
    pub(crate) fn kill(&self) {
        *self.running.lock() = None;
    }

    /// The end of what it printed.
    pub(crate) fn log(&self) -> String {
        let text = std::fs::read_to_string(self.directory.join(LOG)).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(12)..].join("\n")
    }
}

impl Running {
    fn start(program: &Path, args: &[String], directory: &Path) -> Result<Self, Stop> {
        let log = File::create(directory.join(LOG))?;
        let mut server = Command::new("/bin/sh")
            .args(["-c", SERVER, "server"])
            .arg(program)
            .args(args)
            .current_dir(directory)
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()?;
        let word = server.stdin.take();
        let watchdog = Command::new("/bin/sh")
            .args(["-c", WATCHDOG, "watchdog", &server.id().to_string()])
            .arg(directory)
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let watchdog = match watchdog {
            Ok(watchdog) => watchdog,
            Err(error) => {
                drop(word);
                server.wait()?;
                return Err(error.into());
            }
        };
        let running = Self { server, watchdog };
        word.ok_or_else(|| Stop::failed("the server has no pipe"))?.write_all(b"go\n")?;
        Ok(running)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Each of these fails only for a process that is gone. The watchdog goes before the server
        // is reaped: it must never kill a process that got the same id later.
        let _ = id(&self.server).map(|group| kill_process_group(group, Signal::KILL));
        let _ = self.server.kill();
        let _ = self.watchdog.kill();
        let _ = self.watchdog.wait();
        let _ = self.server.wait();
    }
}

fn id(child: &Child) -> Result<Pid, Stop> {
    let gone = || Stop::failed("the server has no process id");
    Pid::from_raw(i32::try_from(child.id())?).ok_or_else(gone)
}

/// Where the program is, as a shell would find it.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    if program.contains('/') {
        return Some(PathBuf::from(program)).filter(|path| path.is_file());
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|path| path.is_file())
}
