//! Several processes that do the same work at the same time. They get commands through pipes, and
//! report when they held a lock.

pub(crate) mod contestant;
mod holds;
pub(crate) mod peers;
pub(crate) mod relays;
pub(crate) mod team;

use std::{
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc::{self, Receiver},
    time::Duration,
};

use dlock_testlab::{Stop, zookeeper::JavaProgram};
use rustix::time::{ClockId, clock_gettime};
use tokio::runtime::Runtime;

use crate::{Failure, clock, own::Flavour};

pub(crate) use holds::{Hold, Holds};

/// The delay between a command and the common start, so that no process starts before the others.
const HEAD_START: Duration = Duration::from_millis(50);

/// The longest wait for an answer: far longer than any answer takes.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(180);

/// Processes that do the same work at the same time.
pub(crate) struct Crew(Vec<Box<dyn Talk>>);

/// A process that answers lines.
pub(crate) trait Talk {
    /// Sends a line.
    fn say(&mut self, line: &str) -> Result<(), Failure>;

    /// Returns the answer without its first word.
    fn answer(&mut self) -> Result<String, Failure>;

    /// Returns the process id.
    fn pid(&self) -> Option<u32>;
}

impl Crew {
    /// Starts these processes. They end when this value is dropped.
    pub(crate) fn of(
        commands: impl Iterator<Item = Result<Command, Failure>>,
    ) -> Result<Self, Failure> {
        let members = commands.map(|command| Member::start(command?));
        Ok(Self(members.map(|member| Ok(Box::new(member?) as _)).collect::<Result<_, Failure>>()?))
    }

    /// Returns a crew of processes that were started elsewhere.
    pub(crate) fn of_others(members: Vec<Box<dyn Talk>>) -> Self {
        Self(members)
    }

    /// Returns the ids of the processes.
    pub(crate) fn pids(&self) -> Vec<u32> {
        self.0.iter().filter_map(|member| member.pid()).collect()
    }

    /// Returns the number of processes.
    pub(crate) fn size(&self) -> usize {
        self.0.len()
    }

    /// Returns the first process, to which a line can be sent without waiting for its answer.
    pub(crate) fn first(&mut self) -> Result<&mut dyn Talk, Failure> {
        match self.0.first_mut() {
            Some(member) => Ok(&mut **member),
            None => Err("no process".into()),
        }
    }

    /// Sends each process its line, then waits for all answers.
    pub(crate) fn ask(&mut self, line: impl Fn(usize) -> String) -> Result<Vec<String>, Failure> {
        for (place, member) in self.0.iter_mut().enumerate() {
            member.say(&line(place))?;
        }
        self.0.iter_mut().map(|member| member.answer()).collect()
    }
}

/// Returns the times when processes that get a command now begin and end, for a run of this length.
pub(crate) fn span(lasts: Duration) -> (u64, u64) {
    (clock::after(HEAD_START), clock::after(HEAD_START + lasts))
}

/// A process with pipes.
#[derive(Debug)]
struct Member {
    process: Child,
    to: ChildStdin,
    /// The lines of a thread that reads the pipe, because a read of a pipe has no timeout.
    from: Receiver<String>,
}

impl Member {
    fn start(mut command: Command) -> Result<Self, Failure> {
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let to = process.stdin.take().ok_or("a process without standard input")?;
        let out = process.stdout.take().ok_or("a process without standard output")?;
        let (lines, from) = mpsc::channel();
        std::thread::spawn(move || {
            let mut read = BufReader::new(out).lines().map_while(Result::ok);
            read.all(|line| lines.send(line).is_ok())
        });
        Ok(Self { process, to, from })
    }
}

impl Talk for Member {
    fn say(&mut self, line: &str) -> Result<(), Failure> {
        writeln!(self.to, "{line}")?;
        Ok(self.to.flush()?)
    }

    fn answer(&mut self) -> Result<String, Failure> {
        match self.from.recv_timeout(ANSWER_TIMEOUT) {
            Ok(line) => answer(&line),
            Err(mpsc::RecvTimeoutError::Timeout) => Err("a process does not answer".into()),
            Err(mpsc::RecvTimeoutError::Disconnected) => Err("a process ended early".into()),
        }
    }

    fn pid(&self) -> Option<u32> {
        Some(self.process.id())
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Returns the text after the word that states the result.
pub(crate) fn answer(line: &str) -> Result<String, Failure> {
    match (line.strip_prefix("ok"), line.strip_prefix("error ")) {
        (Some(answer), _) => Ok(answer.to_owned()),
        (_, Some(error)) => Err(format!("a process says: {error}").into()),
        _ => Err(format!("a process says: {line}").into()),
    }
}

const CURATOR: &str = include_str!("../../peers/java/Curator.java");

/// A program with Curator's recipes.
pub(crate) struct Java {
    program: JavaProgram,
    /// Declared after the program, whose pipes need the runtime.
    runtime: Runtime,
}

impl Java {
    /// Starts the program.
    pub(crate) fn start(url: &str) -> Result<Self, Failure> {
        let runtime = Flavour::CurrentThread.start()?;
        let address = url.trim_start_matches("zk://").to_owned();
        // Java's clock leaves out the time for which the machine was suspended.
        let monotonic = clock_gettime(ClockId::Monotonic);
        let behind = clock::now()
            .saturating_sub(u64::try_from(monotonic.tv_sec)? * 1_000_000_000)
            .saturating_sub(u64::try_from(monotonic.tv_nsec)?);
        let started = runtime.block_on(async {
            JavaProgram::start(CURATOR, &[&address, &behind.to_string()]).await
        });
        Ok(Self { program: started.map_err(stopped)?, runtime })
    }
}

impl Talk for Java {
    fn say(&mut self, line: &str) -> Result<(), Failure> {
        self.runtime.block_on(self.program.say(line)).map_err(stopped)
    }

    fn answer(&mut self) -> Result<String, Failure> {
        answer(&self.runtime.block_on(self.program.line()).map_err(stopped)?)
    }

    fn pid(&self) -> Option<u32> {
        self.program.pid()
    }
}

fn stopped(stop: Stop) -> Failure {
    format!("{stop:?}").into()
}
