//! The parent's side: the processes and what goes through their pipes.

use std::{
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    time::Duration,
};

use super::{
    child::URL,
    holds::{Hold, Holds},
};
use crate::{Failure, clock};

/// How long after it was told all processes begin, so that none is there before the others.
const HEAD_START: Duration = Duration::from_millis(50);

/// Processes that do the same at one time.
#[derive(Debug)]
pub(super) struct Crew(Vec<Member>);

impl Crew {
    /// Starts them. They end with this value.
    pub(super) fn start(url: &str, size: usize) -> Result<Self, Failure> {
        Ok(Self((0..size).map(|_| Member::start(url)).collect::<Result<_, _>>()?))
    }

    /// Lets each have so many connections at least.
    pub(super) fn connect(&mut self, clients: usize) -> Result<(), Failure> {
        self.ask(|_| format!("connect {clients}"))?;
        Ok(())
    }

    /// Sends one message round for so long: how long each of its ways took.
    pub(super) fn ring(&mut self, lasts: Duration) -> Result<Vec<Duration>, Failure> {
        let size = self.0.len();
        self.ask(|place| format!("join {place}"))?;
        let (from, until) = span(lasts);
        let answers =
            self.ask(|place| format!("ring {place} {} {from} {until}", (place + 1) % size))?;
        let took = answers.iter().flat_map(|line| line.split_whitespace());
        took.map(|nanos| Ok(Duration::from_nanos(nanos.parse()?))).collect()
    }

    /// Lets so many clients of each take one lock, again and again.
    pub(super) fn contend(
        &mut self,
        name: &str,
        clients: usize,
        lasts: Duration,
    ) -> Result<Holds, Failure> {
        let (from, until) = span(lasts);
        let answers = self.ask(|_| format!("contend {name} {clients} {from} {until}"))?;
        let mut holds = Vec::new();
        for (process, line) in answers.iter().enumerate() {
            for hold in line.split_whitespace() {
                holds.push(Hold::parse(process, hold)?);
            }
        }
        Holds::new(holds, self.0.len())
    }

    /// Tells each its line, then waits for an answer of each.
    fn ask(&mut self, line: impl Fn(usize) -> String) -> Result<Vec<String>, Failure> {
        for (place, member) in self.0.iter_mut().enumerate() {
            writeln!(member.to, "{}", line(place))?;
            member.to.flush()?;
        }
        self.0.iter_mut().map(Member::answer).collect()
    }
}

fn span(lasts: Duration) -> (u64, u64) {
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
