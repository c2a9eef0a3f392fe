//! A store, the command with this store, and commands that hold its locks.

use std::{
    io::{BufRead, BufReader, Read},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

/// A backstop on a busy machine, never a measure of speed.
const BOUND: Duration = Duration::from_secs(60);

/// Prints that it runs, and ends with its stdin.
pub(crate) const HOLD: &str = "echo held; cat";

/// The command with one store.
pub(crate) struct Dlock {
    pub(crate) url: String,
    /// The directory of an SQLite store, which lives as long as the store.
    pub(crate) directory: TempDir,
}

/// The result of a command.
#[derive(Debug)]
pub(crate) struct Went {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Dlock {
    /// Returns the command with a store in a new file.
    pub(crate) fn on_sqlite() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("locks.db");
        let url = format!("sqlite:{}?dlock.create_schema=true", file.display());
        Self { url, directory }
    }

    pub(crate) fn on(url: String) -> Self {
        Self { url, directory: tempfile::tempdir().unwrap() }
    }

    /// The command with the store in its environment.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = bare(args);
        command.env("DLOCK_URL", &self.url).current_dir(self.directory.path());
        command
    }

    pub(crate) fn went(&self, args: &[&str]) -> Went {
        went(&mut self.command(args))
    }

    /// Returns the output of a command that succeeds.
    pub(crate) fn out(&self, args: &[&str]) -> String {
        let went = self.went(args);
        assert_eq!(went.code, Some(0), "{args:?}: {went:?}");
        went.out
    }

    /// The same as JSON.
    pub(crate) fn json(&self, args: &[&str]) -> Value {
        serde_json::from_str(&self.out(args)).unwrap()
    }

    pub(crate) fn inspect(&self, name: &str) -> Value {
        self.json(&["inspect", name, "--json"])
    }

    /// `dlock run` of a script that says a line when it runs.
    pub(crate) fn hold(&self, args: &[&str], script: &str) -> Running {
        let mut held =
            Running::start(self.command(&[&["run"], args, &["--", "sh", "-c", script]].concat()));
        assert_eq!(held.line(), "held");
        held
    }
}

/// The command without a store.
pub(crate) fn bare(args: &[&str]) -> Command {
    let mut command = with_signals(env!("CARGO_BIN_EXE_dlock"));
    for variable in ["DLOCK_URL", "DLOCK_URL_FILE", "DLOCK_RUN"] {
        command.env_remove(variable);
    }
    command.args(args).stdin(Stdio::null());
    command
}

/// A program that ignores no signal at its start, even if the tests inherit ignored signals: a
/// shell makes its background jobs ignore two of them.
pub(crate) fn with_signals(program: &str) -> Command {
    let mut command = Command::new("env");
    command.args(["--default-signal", program]);
    command
}

pub(crate) fn went(command: &mut Command) -> Went {
    let output = command.output().unwrap();
    Went {
        code: output.status.code(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

/// Waits until the condition is true.
#[track_caller]
pub(crate) fn until(what: &str, mut so: impl FnMut() -> bool) {
    let clock = dlock::backend::Clock::Boot;
    let began = clock.now();
    while !so() {
        assert!(clock.now().since(began) < BOUND, "{what}: not within {BOUND:?}");
        std::thread::sleep(Duration::from_millis(30));
    }
}

/// A running command. When this value is dropped, its stdin is closed, and the program that it runs
/// ends.
pub(crate) struct Running {
    process: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

impl Running {
    pub(crate) fn start(mut command: Command) -> Self {
        let mut process = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stdin = process.stdin.take();
        let stdout = BufReader::new(process.stdout.take().unwrap());
        Self { process, stdin, stdout }
    }

    /// Returns the next line that it prints.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// Returns the next line that it prints on stderr.
    pub(crate) fn complaint(&mut self) -> String {
        let stderr = self.process.stderr.as_mut().unwrap();
        let mut line = Vec::new();
        let mut byte = [0];
        while stderr.read(&mut byte).unwrap() == 1 && byte[0] != b'\n' {
            line.push(byte[0]);
        }
        String::from_utf8(line).unwrap()
    }

    pub(crate) fn stdin(&mut self) -> &mut ChildStdin {
        self.stdin.as_mut().unwrap()
    }

    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.process.id().cast_signed()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.process.try_wait().unwrap().is_some()
    }

    /// Closes its stdin, so that the command ends.
    pub(crate) fn close_stdin(&mut self) {
        self.stdin = None;
    }

    /// Closes its stdin, and waits until all processes with its stdout have ended.
    pub(crate) fn finish(mut self) -> Went {
        self.stdin = None;
        self.ended()
    }

    /// The same for a command that has to end by itself: its stdin stays open.
    pub(crate) fn ended(mut self) -> Went {
        let (mut out, mut err) = (String::new(), String::new());
        self.stdout.read_to_string(&mut out).unwrap();
        self.process.stderr.as_mut().unwrap().read_to_string(&mut err).unwrap();
        Went { code: self.process.wait().unwrap().code(), out, err }
    }
}

impl Drop for Running {
    /// After a failed test, no process of it continues.
    fn drop(&mut self) {
        if matches!(self.process.try_wait(), Ok(None)) {
            self.signal(Signal::TERM);
        }
    }
}
