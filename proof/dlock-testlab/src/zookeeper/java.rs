//! A Java program that runs beside a test, such as a lock of another client.

use std::{
    collections::BTreeMap,
    fs::File,
    io::Write,
    os::unix::process::CommandExt,
    path::PathBuf,
    process::{Child, Command, ExitStatus, Stdio},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines},
    process::{ChildStdin, ChildStdout},
    runtime::Handle,
    sync::OnceCell,
    time::{sleep, timeout},
};

use super::{
    archive::archive,
    programs::{Compiler, Programs},
};
use crate::{Stop, Verdict, directory::Directory, process::until_stopped, watchdog::Watchdog};

/// The shell waits for a line before it starts the program. If the line never comes, the shell
/// ends, so the program never runs without its watchdog. The rest of the input goes to the program.
const PROGRAM: &str = r#"read -r _ && exec "$@""#;

const CLASS: &str = "Main";
const LOG: &str = "log";

/// A backstop on a busy machine, never a measure of speed.
const BOUND: Duration = Duration::from_secs(60);

const POLL: Duration = Duration::from_millis(3);

/// A Java program of one file that runs with ZooKeeper and Curator's recipes on its class path. It
/// ends when this value is dropped.
#[derive(Debug)]
pub struct JavaProgram {
    process: Child,
    /// The process id until it is reaped. After that, another process may get the same id.
    id: Option<Pid>,
    input: Option<ChildStdin>,
    output: Lines<BufReader<ChildStdout>>,
    directory: TempDir,
    // Declared after the directory, so that the watchdog removes the directory if this process ends
    // while it is being removed.
    watchdog: Watchdog,
}

impl JavaProgram {
    /// Starts a program with this source, whose class is `Main`, on the current runtime. Each
    /// source is compiled once per process.
    ///
    /// # Errors
    /// [`Stop::missing`] if Java, its compiler, ZooKeeper or Curator is not installed; and those of
    /// the compiler.
    pub async fn start(source: &str, args: &[&str]) -> Result<Self, Stop> {
        // The pipes need a runtime, and would panic without one.
        Handle::try_current()?;
        let programs = Programs::find()?;
        let compiler = programs.compiler()?;
        let classes = compiler.compiled(source).await?;
        let archive = archive(&programs).await;
        let class_path = format!("{}:{}", compiler.class_path, classes.display());
        let directory = tempfile::Builder::new().prefix("dlock-java-").tempdir()?;
        let watchdog = Watchdog::over(directory.path(), "")?;
        let mut process = Command::new("/bin/sh")
            .args(["-c", PROGRAM, "program"])
            .arg(&programs.java)
            // The second option keeps Java from compiling for longer than the program runs. The
            // last one keeps it from leaving a file outside of the directory.
            .args(["-Xmx256m", "-XX:TieredStopAtLevel=1"])
            .args(["-XX:+UseSerialGC", "-XX:-UsePerfData"])
            // Java's own warnings must not appear among the lines of the program.
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

    /// Runs a program without input until it ends, without a limit of time. Returns its output.
    ///
    /// # Errors
    /// Those of [`Self::start`], and if the program fails.
    pub async fn run(source: &str, args: &[&str]) -> Result<String, Stop> {
        Self::start(source, args).await?.finish().await
    }

    /// Sends a line to the program's input.
    ///
    /// # Errors
    /// If the program has ended.
    pub async fn say(&mut self, line: &str) -> Verdict {
        match &mut self.input {
            Some(input) => Ok(input.write_all(format!("{line}\n").as_bytes()).await?),
            None => Err(killed()),
        }
    }

    /// Returns the next line of the output, without the line break.
    ///
    /// # Errors
    /// If the program ends instead.
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

    /// Closes the input, and waits until the program ends, without a limit of time. Returns the
    /// output that was not [read](Self::line) before.
    ///
    /// # Errors
    /// If the program fails.
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

    /// Returns the process id; `None` after the program was killed.
    pub fn pid(&self) -> Option<u32> {
        self.id.map(|_| self.process.id())
    }

    /// Pauses the program, as a long garbage collection does. The process is stopped when this
    /// returns.
    ///
    /// # Errors
    /// If the program was killed, or does not stop.
    pub fn pause(&self) -> Verdict {
        self.signal(Signal::STOP)?;
        match until_stopped(self.process.id())? {
            true => Ok(()),
            false => Err(Stop::failed("the program has ended instead of being stopped")),
        }
    }

    /// Continues a paused program.
    ///
    /// # Errors
    /// If the program was killed.
    pub fn resume(&self) -> Verdict {
        self.signal(Signal::CONT)
    }

    /// Kills the program without a chance to clean up. It has ended when this returns.
    pub fn kill(&mut self) {
        self.end();
    }

    fn signal(&self, signal: Signal) -> Verdict {
        Ok(kill_process_group(self.id.ok_or_else(killed)?, signal)?)
    }

    /// Kills the program if it still runs. The first call returns how it ended.
    fn end(&mut self) -> Option<ExitStatus> {
        self.input = None;
        let id = self.id.take()?;
        // Both fail only for a process that has ended.
        let _ = kill_process_group(id, Signal::KILL);
        let _ = self.watchdog.forget();
        self.process.wait().ok()
    }

    /// Returns the text of its standard error.
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

const SOURCE: &str = "Main.java";

/// `$1` is the compiler, and `$2` the class path. The compiler runs only briefly, so Java's better
/// compilers would not pay off.
const COMPILE: &str = r#""$1" -J-XX:TieredStopAtLevel=1 -J-XX:+UseSerialGC -J-XX:-UsePerfData \
    -proc:none -d . -cp "$2" Main.java"#;

/// The directory of each source's classes. They are never dropped: their watchdogs remove the
/// directories when the process ends.
static COMPILED: Mutex<BTreeMap<String, Arc<OnceCell<Directory>>>> = Mutex::new(BTreeMap::new());

impl Compiler {
    /// Returns the directory with the classes of this source.
    async fn compiled(&self, source: &str) -> Result<PathBuf, Stop> {
        let directory = Arc::clone(COMPILED.lock().entry(source.to_owned()).or_default());
        let directory = directory.get_or_try_init(|| self.compile(source)).await?;
        Ok(directory.path().to_owned())
    }

    async fn compile(&self, source: &str) -> Result<Directory, Stop> {
        let directory = Directory::new("dlock-classes-", None, "")?;
        directory.write(SOURCE, source)?;
        directory.run(COMPILE, &[&self.javac.display().to_string(), &self.class_path]).await?;
        Ok(directory)
    }
}
