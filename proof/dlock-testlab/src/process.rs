//! Server processes that can't outlive the test.
//!
//! Dropping a [`Daemon`] kills and reaps the process. If the test process itself is killed, no
//! value is dropped; then a [`Watchdog`] kills the server. Server and watchdog are in process
//! groups of their own, so an interrupt from the terminal does not reach them before the test
//! process has ended.

use std::{
    fs::{self, File},
    io::Write,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, ExitStatus, Stdio},
    sync::Arc,
    thread,
    time::Duration,
};

use parking_lot::Mutex;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, kill_process_group, waitid},
};
use tokio::time::sleep;

use super::{clock::SteppedClock, directory::Directory, machine::Account, watchdog::Watchdog};
use crate::{Stop, Verdict};

/// The file in the program's directory that gets its output.
const LOG: &str = "log";

/// A program with what it needs to run.
#[derive(Clone, Debug)]
pub(super) struct Launch {
    pub(super) program: PathBuf,
    pub(super) args: Vec<String>,
    pub(super) directory: PathBuf,
    /// The account that the program runs as; `None` is the account of this process.
    pub(super) account: Option<Account>,
    pub(super) children: Children,
    /// Shell commands that remove what the program leaves outside of its directory. They run in the
    /// directory each time the program has ended.
    pub(super) remains: &'static str,
    pub(super) clock: Option<SteppedClock>,
}

/// The process groups of a server's children.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Children {
    /// The children are in the server's process group, or there are none.
    InGroup,
    /// Each child is in a process group of its own.
    Apart,
}

impl Launch {
    /// Sets the process groups of the children.
    pub(super) fn with_children(mut self, children: Children) -> Self {
        self.children = children;
        self
    }

    /// Sets the wall clock of the program. The default is the machine's.
    pub(super) fn with_clock(mut self, clock: Option<&SteppedClock>) -> Self {
        self.clock = clock.cloned();
        self
    }

    pub(super) fn printed(&self) -> String {
        fs::read_to_string(self.directory.join(LOG)).unwrap_or_default()
    }
}

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
    fn start(launch: Launch, watchdog: Arc<Watchdog>) -> Result<Self, Stop> {
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

    /// Whether the program ended because another one had its port.
    pub(super) fn lost_its_port(&self) -> bool {
        self.launch.printed().to_lowercase().contains("address already in use")
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

impl Directory {
    /// Returns a launch of the program in this directory, as its account.
    pub(super) fn launch(&self, program: &Path, args: &[&str]) -> Launch {
        Launch {
            program: program.to_owned(),
            args: args.iter().map(|&arg| arg.to_owned()).collect(),
            directory: self.path().to_owned(),
            account: self.account,
            children: Children::InGroup,
            remains: self.remains,
            clock: None,
        }
    }

    /// Starts a program, which belongs to the watchdog of this directory.
    pub(super) fn start(&self, launch: Launch) -> Result<Daemon, Stop> {
        Daemon::start(launch, Arc::clone(&self.watchdog))
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

/// The shell waits for a line before it starts the server. If the line never comes, the shell ends,
/// so the server never runs without its watchdog. Its processes hold the third descriptor open
/// until the last of them has ended.
const SERVER: &str = r#"read -r _ && exec "$@" </dev/null 3>&1 >&2"#;

/// A backstop for processes that don't end when they are killed.
const BOUND: Timespec = Timespec { tv_sec: 20, tv_nsec: 0 };

#[derive(Debug)]
struct Running {
    server: Child,
    id: Pid,
    /// The read end of a pipe; all processes of the server hold the write end.
    held: ChildStdout,
}

impl Running {
    fn start(launch: &Launch, watchdog: &Watchdog) -> Result<Self, Stop> {
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

    fn id(&self) -> u32 {
        self.server.id()
    }

    /// Whether the process has ended. It is not reaped here, so it keeps its id.
    fn has_ended(&self) -> Result<bool, Stop> {
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        Ok(waitid(WaitId::Pid(self.id), look)?.is_some())
    }

    fn signal(&self, signal: Signal) -> Verdict {
        Ok(kill_process(self.id, signal)?)
    }

    /// Stops the process and then its children: a stopped process starts no more of them. All are
    /// stopped when this returns.
    fn pause(&self, launch: &Launch) -> Verdict {
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

    fn resume(&self, launch: &Launch) -> Verdict {
        for child in self.children(launch)? {
            signal_child(child, Signal::CONT);
        }
        self.signal(Signal::CONT)
    }

    /// Kills the processes that still run, and waits until all have ended. Returns how the server
    /// ended.
    fn end(mut self, launch: &Launch, watchdog: &Watchdog) -> Option<ExitStatus> {
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

/// The pause between two checks whether a process is stopped.
const STOP_POLL: Duration = Duration::from_millis(1);

/// The maximum number of checks: a backstop for a process that waits for its disk.
const LOOKS: usize = 10_000;

/// Whether the process with all its threads is stopped, for instance by
/// [`pause`](super::redis::RedisServer::pause). `false` if it has ended, and on all systems except
/// Linux.
pub fn is_stopped(pid: u32) -> bool {
    let threads = states(pid);
    !threads.is_empty() && threads.iter().all(|state| *state == 'T')
}

/// Waits until a process is stopped after it got a stop signal, which takes a moment. Returns
/// `false` if it has ended. On systems without `/proc`, processes count as stopped.
pub(super) fn until_stopped(pid: u32) -> Result<bool, Stop> {
    if !Path::new("/proc/self/task").exists() {
        return Ok(true);
    }
    for _ in 0..LOOKS {
        match states(pid).as_slice() {
            states if states.iter().all(|state| matches!(state, 'Z' | 'X')) => return Ok(false),
            states if states.iter().all(|state| *state == 'T') => return Ok(true),
            _ => thread::sleep(STOP_POLL),
        }
    }
    Err(Stop::failed(format!("process {pid} is not stopped, although it was told to")))
}

/// Returns the state of each thread.
fn states(pid: u32) -> Vec<char> {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return Vec::new();
    };
    let stats = threads.flatten().map(|thread| fs::read_to_string(thread.path().join("stat")));
    // A thread that has ended since the listing has no state.
    stats.flatten().filter_map(|stat| state(&stat)).collect()
}

/// The state is the field after the name. The name is in parentheses and may contain some.
fn state(stat: &str) -> Option<char> {
    stat.rsplit_once(") ")?.1.chars().next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_stands_behind_any_name() {
        assert_eq!(state("7 (a) T (b) c) S 1 7"), Some('S'));
        assert_eq!(state("7 (a"), None);
    }

    #[test]
    fn a_running_or_ended_process_is_not_stopped() {
        let mut process = Command::new("sleep").arg("60").stdin(Stdio::null()).spawn().unwrap();
        let pid = process.id();
        assert!(!is_stopped(pid) && !is_stopped(std::process::id()));
        process.kill().unwrap();
        process.wait().unwrap();
        assert!(!is_stopped(pid));
        if cfg!(target_os = "linux") {
            assert!(!until_stopped(pid).unwrap());
        }
    }
}
