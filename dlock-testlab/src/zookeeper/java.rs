//! A Java program beside a test, such as a lock of another client.

use std::{
    fs::File,
    io::Write,
    os::unix::process::CommandExt,
    process::{Child, Command, ExitStatus, Stdio},
    time::Duration,
};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines},
    process::{ChildStdin, ChildStdout},
    runtime::Handle,
    time::{sleep, timeout},
};

use super::programs::Programs;
use crate::{Stop, Verdict, proc::until_stopped, watchdog::Watchdog};

/// The program waits for the word: without it, it ends instead of starting, so there is no moment
/// in which it runs unwatched. The rest of its input is its own.
const PROGRAM: &str = r#"read -r _ && exec "$@""#;

const CLASS: &str = "Main";
const LOG: &str = "log";

/// A backstop on a busy machine, never a measure of speed.
const BOUND: Duration = Duration::from_secs(60);

const POLL: Duration = Duration::from_millis(3);

/// A Java program of one file that runs with ZooKeeper and Curator's recipes on its class path. It
/// dies with this value.
#[derive(Debug)]
pub struct JavaProgram {
    process: Child,
    /// Its id until it is reaped; then somebody else may get that.
    id: Option<Pid>,
    input: Option<ChildStdin>,
    output: Lines<BufReader<ChildStdout>>,
    directory: TempDir,
    // After the directory, which it removes if this process ends in the middle of doing so.
    watchdog: Watchdog,
}

impl JavaProgram {
    /// Starts a program with this source, whose class is `Main`, on the runtime that runs this. It
    /// is compiled once in a process.
    ///
    /// # Errors
    /// [`Stop::missing`] if Java, its compiler, ZooKeeper or Curator is not installed; and those
    /// of the compiler.
    pub async fn start(source: &str, args: &[&str]) -> Result<Self, Stop> {
        // The pipes want it, and would panic.
        Handle::try_current()?;
        let programs = Programs::find()?;
        let compiler = programs.compiler()?;
        let classes = compiler.compiled(source).await?;
        let Programs { java, archive, .. } = programs.archived().await;
        let class_path = format!("{}:{}", compiler.class_path, classes.display());
        let directory = tempfile::Builder::new().prefix("dlock-java-").tempdir()?;
        let watchdog = Watchdog::over(directory.path(), "")?;
        let mut process = Command::new("/bin/sh")
            .args(["-c", PROGRAM, "program"])
            .arg(java)
            // The second keeps it from compiling for longer than it runs. The last would leave a file
            // outside of the directory.
            .args(["-Xmx256m", "-XX:TieredStopAtLevel=1"])
            .args(["-XX:+UseSerialGC", "-XX:-UsePerfData"])
            // Java's own warnings are no lines of the program.
            .args(["-Xlog:disable", "-Xlog:all=warning:stderr"])
            .args(archive)
            .arg("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")
            .args(["-cp", &class_path, CLASS])
            .args(args)
            .current_dir(directory.path())
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(File::create(directory.path().join(LOG))?)
            .spawn()?;
        let id = i32::try_from(process.id()).ok().and_then(Pid::from_raw);
        let (input, output) = (process.stdin.take(), process.stdout.take());
        let (Some(id), Some(mut input), Some(output)) = (id, input, output) else {
            return Err(Stop::failed("the program has no id or no pipe"));
        };
        let output = BufReader::new(ChildStdout::from_std(output)?).lines();
        let mut program = Self { process, id: Some(id), input: None, output, directory, watchdog };
        program.watchdog.watch(program.process.id())?;
        input.write_all(b"go\n")?;
        program.input = Some(ChildStdin::from_std(input)?);
        Ok(program)
    }

    /// Runs a program to its end without any input, however long it takes. What it prints.
    ///
    /// # Errors
    /// Those of [`Self::start`], and when it fails.
    pub async fn run(source: &str, args: &[&str]) -> Result<String, Stop> {
        Self::start(source, args).await?.finish().await
    }

    /// Gives it a line to read.
    ///
    /// # Errors
    /// When it has ended.
    pub async fn say(&mut self, line: &str) -> Verdict {
        match &mut self.input {
            Some(input) => Ok(input.write_all(format!("{line}\n").as_bytes()).await?),
            None => Err(killed()),
        }
    }

    /// The next line that it prints, without its end.
    ///
    /// # Errors
    /// When it ends instead.
    pub async fn line(&mut self) -> Result<String, Stop> {
        match timeout(BOUND, self.output.next_line()).await {
            Ok(Ok(Some(line))) => Ok(line),
            Ok(Ok(None)) => Err(Stop::failed(format!("the program ended\n{}", self.log()))),
            Ok(Err(error)) => Err(error)?,
            Err(_) => {
                let log = self.log();
                Err(Stop::failed(format!("the program says nothing for {BOUND:?}\n{log}")))
            }
        }
    }

    /// Closes its input, and waits until it ends, however long that takes. What it printed that was
    /// not [read](Self::line) before.
    ///
    /// # Errors
    /// When it fails.
    pub async fn finish(mut self) -> Result<String, Stop> {
        self.input = None;
        let mut rest = String::new();
        while let Some(line) = self.output.next_line().await? {
            rest = rest + &line + "\n";
        }
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        while waitid(WaitId::Pid(self.id.ok_or_else(killed)?), look)?.is_none() {
            sleep(POLL).await;
        }
        match self.end() {
            Some(status) if status.success() => Ok(rest),
            status => Err(Stop::failed(format!("the program: {status:?}\n{}", self.log()))),
        }
    }

    /// Its process id; `None` once it was killed.
    pub fn pid(&self) -> Option<u32> {
        self.id.map(|_| self.process.id())
    }

    /// Stops it where it stands, as a long collection of garbage does. It is stopped when this
    /// returns.
    ///
    /// # Errors
    /// When it was killed, or is not stopped in the end.
    pub fn pause(&self) -> Verdict {
        self.signal(Signal::STOP)?;
        match until_stopped(self.process.id())? {
            true => Ok(()),
            false => Err(Stop::failed("the program has ended instead of being stopped")),
        }
    }

    /// Lets it go on.
    ///
    /// # Errors
    /// If the server was killed.
    pub fn resume(&self) -> Verdict {
        self.signal(Signal::CONT)
    }

    /// Kills it without a chance to clean up. It has ended when this returns.
    pub fn kill(&mut self) {
        self.end();
    }

    fn signal(&self, signal: Signal) -> Verdict {
        Ok(kill_process_group(self.id.ok_or_else(killed)?, signal)?)
    }

    /// Kills it if it still runs. How it ended, the first time.
    fn end(&mut self) -> Option<ExitStatus> {
        self.input = None;
        let id = self.id.take()?;
        // Both fail only for a process that is gone.
        let _ = kill_process_group(id, Signal::KILL);
        let _ = self.watchdog.forget();
        self.process.wait().ok()
    }

    /// What it said beside its output.
    fn log(&self) -> String {
        std::fs::read_to_string(self.directory.path().join(LOG)).unwrap_or_default()
    }
}

impl Drop for JavaProgram {
    fn drop(&mut self) {
        self.end();
    }
}

fn killed() -> Stop {
    Stop::failed("the program was killed")
}
