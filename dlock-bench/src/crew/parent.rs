//! The parent's side: the processes and what goes through their pipes.

use std::{
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    time::Duration,
};

use super::{
    child::{FAILED, URL},
    holds::{Hold, Holds},
};
use crate::{Failure, clock};

/// How long after it was told all processes begin, so that none is there before the others.
const HEAD_START: Duration = Duration::from_millis(50);

/// Processes that do the same at one time.
#[derive(Debug)]
pub(crate) struct Crew(Vec<Member>);

/// What came of clients that wanted one lock.
#[derive(Debug)]
pub(crate) struct Contest {
    /// Who held it when.
    pub(crate) holds: Holds,
    /// The errors that reached callers.
    pub(crate) errors: Vec<String>,
}

impl Contest {
    /// The holds of one that no error has disturbed.
    pub(crate) fn without_errors(self) -> Result<Holds, Failure> {
        match self.errors.first() {
            None => Ok(self.holds),
            Some(error) => Err(format!("a process says: {error}").into()),
        }
    }
}

impl Crew {
    /// Starts them. They end with this value.
    pub(crate) fn start(url: &str, size: usize) -> Result<Self, Failure> {
        Ok(Self((0..size).map(|_| Member::start(url)).collect::<Result<_, _>>()?))
    }

    /// How many they are.
    pub(crate) fn size(&self) -> usize {
        self.0.len()
    }

    /// Lets each have so many connections at least.
    pub(crate) fn connect(&mut self, clients: usize) -> Result<(), Failure> {
        self.ask(|_| format!("connect {clients}"))?;
        Ok(())
    }

    /// Lets so many clients of each process, of `tasks` tasks each, take one lock again and again.
    pub(crate) fn contend(
        &mut self,
        name: &str,
        clients: usize,
        tasks: usize,
        lasts: Duration,
    ) -> Result<Contest, Failure> {
        let (from, until) = span(lasts);
        let answers = self.ask(|_| format!("contend {name} {clients} {tasks} {from} {until}"))?;
        let (mut holds, mut errors) = (Vec::new(), Vec::new());
        for (process, line) in answers.iter().enumerate() {
            for word in line.split_whitespace() {
                match word.strip_prefix(FAILED) {
                    Some(error) => errors.push(error.replace('_', " ")),
                    None => holds.push(Hold::parse(process, word)?),
                }
            }
        }
        Ok(Contest { holds: Holds::new(holds, self.size(), clients * tasks)?, errors })
    }

    /// Tells each its line, then waits for an answer of each.
    pub(crate) fn ask(&mut self, line: impl Fn(usize) -> String) -> Result<Vec<String>, Failure> {
        for (place, member) in self.0.iter_mut().enumerate() {
            writeln!(member.to, "{}", line(place))?;
            member.to.flush()?;
        }
        self.0.iter_mut().map(Member::answer).collect()
    }
}

/// When processes that are told now begin, and when they end if it lasts so long.
pub(crate) fn span(lasts: Duration) -> (u64, u64) {
    (clock::after(HEAD_START), clock::after(HEAD_START + lasts))
}

#[derive(Debug)]
struct Member {
    process: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Member {
    fn start(url: &str) -> Result<Self, Failure> {
        let mut process = Command::new(std::env::current_exe()?)
            .env(URL, url)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let to = process.stdin.take().ok_or("a process without standard input")?;
        let from = process.stdout.take().ok_or("a process without standard output")?;
        Ok(Self { process, to, from: BufReader::new(from) })
    }

    fn answer(&mut self) -> Result<String, Failure> {
        let mut line = String::new();
        if self.from.read_line(&mut line)? == 0 {
            return Err("a process ended early".into());
        }
        match line.trim_end().strip_prefix("ok") {
            Some(answer) => Ok(answer.to_owned()),
            None => Err(format!("a process says: {}", line.trim_end()).into()),
        }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
