//! One process of holders, from the parent's side.

use std::{
    fs::File,
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::Stdio,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use dlock_core::Instant;
use dlock_testkit::{
    Stop, Verdict,
    support::{ensure, now},
};
use rustix::process::{Pid, Signal, kill_process};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
    time::{sleep, timeout},
};

use super::{child::CHILD, history, line::Line};

/// The longest time that a process may take to start or to end.
const BOUND: Duration = Duration::from_secs(40);
/// The longest time that the system may take to stop all threads of a process.
const STOPPING: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) struct Process {
    pub(super) number: usize,
    pub(super) files: Files,
    child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
    is_ready: bool,
    /// Whether a caller is stopping the process.
    stopped: AtomicBool,
}

/// The files of a process: its log, and its standard error.
#[derive(Clone, Debug)]
pub(super) struct Files {
    pub(super) log: PathBuf,
    errors: PathBuf,
}

impl Files {
    /// Returns the lines of its log so far.
    pub(super) fn lines(&self) -> Result<Vec<Line>, Stop> {
        // A process that was killed early may have written nothing.
        history::read(&std::fs::read_to_string(&self.log).unwrap_or_default())
    }

    /// Returns the first panic in its standard error, if there was one. The whole text is also
    /// printed.
    pub(super) fn panic(&self) -> Option<String> {
        let errors = std::fs::read(&self.errors).unwrap_or_default();
        let errors = String::from_utf8_lossy(&errors);
        eprint!("{errors}");
        let at = errors.find("panicked")?;
        let line = errors[..at].rfind('\n').map_or(0, |end| end + 1);
        Some(errors[line..].lines().take(2).collect::<Vec<_>>().join(" "))
    }
}

impl Process {
    /// Starts this binary, or another version of it, as a child.
    pub(super) fn begin(
        number: usize,
        directory: &Path,
        env: &[(String, String)],
        program: Option<&Path>,
    ) -> Result<Self, Stop> {
        let errors = directory.join(format!("{number}.err"));
        let program = match program {
            Some(other) => other.to_owned(),
            None => std::env::current_exe()?,
        };
        let mut child = Command::new(program)
            .envs(env.iter().map(|(name, value)| (name, value)))
            .env(CHILD, "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(File::create(&errors)?)
            .kill_on_drop(true)
            .spawn()?;
        let piped = || Stop::failed("the child has no pipe");
        let input = child.stdin.take().ok_or_else(piped)?;
        let output = BufReader::new(child.stdout.take().ok_or_else(piped)?).lines();
        let files = Files { log: directory.join(format!("{number}.log")), errors };
        Ok(Self {
            number,
            files,
            child,
            input,
            output,
            is_ready: false,
            stopped: AtomicBool::new(false),
        })
    }

    pub(super) async fn tell(&mut self, what: &str) -> Verdict {
        self.input.write_all(format!("{what}\n").as_bytes()).await?;
        Ok(self.input.flush().await?)
    }

    pub(super) async fn ready(&mut self) -> Verdict {
        if !self.is_ready {
            self.hear("ready", BOUND).await?;
            self.is_ready = true;
        }
        Ok(())
    }

    /// Waits until the process has released all locks and has exited.
    pub(super) async fn done(&mut self) -> Verdict {
        self.hear("done", BOUND).await?;
        let Ok(status) = timeout(BOUND, self.child.wait()).await else {
            return Err(Stop::failed(format!("a process is done and not gone within {BOUND:?}")));
        };
        let status = status?;
        ensure!(status.success(), "a process is done and has ended badly: {status}");
        Ok(())
    }

    /// Sends an order that may take this time. Returns the number in the answer, which begins with
    /// `what`.
    pub(super) async fn order(
        &mut self,
        order: &str,
        what: &str,
        time: Duration,
    ) -> Result<u64, Stop> {
        self.ready().await?;
        self.tell(order).await?;
        let answer = self.line(what, time.saturating_add(BOUND)).await?;
        let number = answer.strip_prefix(what).and_then(|rest| rest.trim().parse().ok());
        number.ok_or_else(|| Stop::failed(format!("a process says to {order}: {answer}")))
    }

    async fn hear(&mut self, what: &str, bound: Duration) -> Verdict {
        let line = self.line(what, bound).await?;
        ensure!(line == what, "a process says: {line}");
        Ok(())
    }

    async fn line(&mut self, what: &str, bound: Duration) -> Result<String, Stop> {
        match timeout(bound, self.output.next_line()).await {
            Ok(line) => line?.ok_or_else(|| Stop::failed("a process has ended by itself")),
            Err(_) => Err(Stop::failed(format!("a process is not {what} within {bound:?}"))),
        }
    }

    /// Kills the process. Returns the time just before that.
    ///
    /// # Errors
    /// If it had already exited.
    pub(super) async fn kill(&mut self) -> Result<Instant, Stop> {
        // The time is taken before the kill, so that no hold counts for longer than it lasted.
        let killed = now();
        self.child.kill().await?;
        let status = self.child.wait().await?;
        let by_this = status.signal() == Some(Signal::KILL.as_raw());
        ensure!(by_this, "a process was to be killed and has ended by itself: {status}");
        Ok(killed)
    }

    /// Whether the caller may stop the process. Only one caller at a time may, so that the caller
    /// that stops it also resumes it.
    pub(super) fn may_stop(&self) -> bool {
        !self.stopped.swap(true, Ordering::SeqCst)
    }

    /// Stops the process for this time. The caller must have received `true` from
    /// [`may_stop`](Self::may_stop).
    ///
    /// # Errors
    /// If it does not stop, or resumes before the end of this time.
    pub(super) async fn stop(&self, time: Duration) -> Verdict {
        self.signal(Signal::STOP)?;
        let stood = self.stand(time).await;
        self.signal(Signal::CONT)?;
        self.stopped.store(false, Ordering::SeqCst);
        stood
    }

    async fn stand(&self, time: Duration) -> Verdict {
        let end = now().saturating_add(STOPPING);
        while self.moves()?.is_some() {
            ensure!(now() < end, "a process does not stop within {STOPPING:?}");
            sleep(Duration::from_millis(1)).await;
        }
        sleep(time).await;
        match self.moves()? {
            None => Ok(()),
            Some(state) => Err(Stop::failed(format!(
                "a process that was stopped went on by itself: a thread is in state {state}"
            ))),
        }
    }

    /// Returns the state of a thread that is not stopped, if there is one. If the system does not
    /// show the states, all threads count as stopped.
    fn moves(&self) -> Result<Option<char>, Stop> {
        if !cfg!(target_os = "linux") {
            return Ok(None);
        }
        let id = self.id()?;
        for thread in std::fs::read_dir(format!("/proc/{id}/task"))? {
            let stat = std::fs::read_to_string(thread?.path().join("stat"))?;
            // The format is `PID (NAME) STATE ...`, and the name may contain any text.
            let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
            if state != Some('T') {
                return Ok(state.or(Some('?')));
            }
        }
        Ok(None)
    }

    fn id(&self) -> Result<i32, Stop> {
        let gone = || Stop::failed("a process has ended by itself");
        Ok(i32::try_from(self.child.id().ok_or_else(gone)?)?)
    }

    fn signal(&self, signal: Signal) -> Verdict {
        let id = Pid::from_raw(self.id()?).ok_or_else(|| Stop::failed("no process"))?;
        Ok(kill_process(id, signal)?)
    }
}
