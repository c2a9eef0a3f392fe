//! The child's side: this executable started again, doing what the parent writes to its standard
//! input, one line at a time, and answering in one line each. Times are those of
//! [`clock::now`], which all processes share.
//!
//! ```text
//! connect CLIENTS                        -> ok        so many connections to the locks
//! contend NAME CLIENTS TASKS FROM UNTIL  -> ok WORD...
//!                               each hold, CLIENT:TOKEN:GOT:LEFT, and each error, !TEXT
//! ```
//! A store may have lines of its own: a [`Skill`].

use std::{
    io::{BufRead, Write},
    time::Duration,
};

use dlock::{Fair, Locks};
use tokio::{runtime::Runtime, task::JoinSet};

use super::holds::Hold;
use crate::{Failure, clock, runtime::Flavour};

/// The address of the store. Its presence makes a process a child.
pub(super) const URL: &str = "DLOCK_BENCH_CHILD_OF";

/// How long a child that has done its part goes on: what a release has left to do in the background
/// would wait for the next run otherwise, and so would whoever is told by it.
const STRAGGLERS: Duration = Duration::from_millis(50);

/// What the word of an error begins with.
pub(super) const FAILED: char = '!';

/// The address of the store, in a child.
pub(crate) fn url() -> Option<String> {
    std::env::var(URL).ok()
}

/// Lines that only the measurements of one store know.
pub(crate) trait Skill {
    /// The answer to such a line; `None` for one that it does not know.
    fn obey(
        &mut self,
        url: &str,
        runtime: &Runtime,
        words: &[&str],
    ) -> Result<Option<String>, Failure>;
}

/// Serves the parent until it closes the pipe.
pub(crate) fn serve(url: &str, skill: &mut impl Skill) -> Result<(), Failure> {
    let runtime = Flavour::CurrentThread.start()?;
    let mut child = Child { url, clients: Vec::new() };
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let words: Vec<&str> = line.split(' ').collect();
        let answer = match child.obey(&runtime, skill, &words) {
            Ok(answer) => format!("ok {answer}"),
            Err(failure) => format!("error {}", failure.to_string().replace('\n', " ")),
        };
        let mut out = std::io::stdout().lock();
        writeln!(out, "{answer}")?;
        out.flush()?;
    }
    Ok(())
}

struct Child<'a> {
    url: &'a str,
    clients: Vec<Locks>,
}

impl Child<'_> {
    fn obey(
        &mut self,
        runtime: &Runtime,
        skill: &mut impl Skill,
        words: &[&str],
    ) -> Result<String, Failure> {
        match *words {
            ["connect", clients] => runtime.block_on(self.connect(clients.parse()?)),
            ["contend", name, clients, tasks, from, until] => {
                let (from, until) = (from.parse()?, until.parse()?);
                let tasks: usize = tasks.parse()?;
                let clients = self.clients.iter().take(clients.parse()?);
                let clients = clients.flat_map(|locks| std::iter::repeat_n(locks, tasks));
                let locks = clients.map(|locks| locks.fair(name)).collect::<Result<_, _>>()?;
                runtime.block_on(contend(locks, from, until))
            }
            _ => match skill.obey(self.url, runtime, words)? {
                Some(answer) => Ok(answer),
                None => Err(format!("no such command: {words:?}").into()),
            },
        }
    }

    async fn connect(&mut self, clients: usize) -> Result<String, Failure> {
        while self.clients.len() < clients {
            self.clients.push(dlock::connect(self.url).await?);
        }
        Ok(String::new())
    }
}

/// Each client takes the lock and gives it back at once, from one time until another.
async fn contend(locks: Vec<Fair>, from: u64, until: u64) -> Result<String, Failure> {
    let mut clients: JoinSet<String> = JoinSet::new();
    for (client, lock) in locks.into_iter().enumerate() {
        clients.spawn(async move {
            let mut words = String::new();
            clock::sleep_until(from).await;
            while clock::now() < until {
                match hold(&lock).await {
                    Ok((token, got, left)) => {
                        words += &format!("{} ", Hold { process: 0, client, token, got, left });
                    }
                    Err(error) => {
                        let word = error.to_string().replace(char::is_whitespace, "_");
                        words += &format!("{FAILED}{word} ");
                    }
                }
            }
            words
        });
    }
    let mut all = String::new();
    while let Some(done) = clients.join_next().await {
        all += &done?;
    }
    tokio::time::sleep(STRAGGLERS).await;
    Ok(all)
}

/// One hold: its token, when it was got and when it was given back.
async fn hold(lock: &Fair) -> Result<(u64, u64, u64), dlock::Error> {
    let guard = lock.lock().await?;
    let got = clock::now();
    let token = guard.token().get();
    let left = clock::now();
    guard.release().await?;
    Ok((token, got, left))
}
