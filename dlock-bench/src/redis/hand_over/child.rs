//! The child's side: this executable started again, doing what the parent writes to its standard
//! input, one line at a time, and answering in one line each. Times are those of
//! [`clock::now`], which all processes share.
//!
//! ```text
//! connect CLIENTS                  -> ok                    so many connections to the locks
//! contend NAME CLIENTS FROM UNTIL  -> ok TOKEN:GOT:LEFT...  each hold of each client
//! join PLACE                       -> ok                    listens at a place of the ring
//! ring PLACE NEXT FROM UNTIL       -> ok NANOS...           each way of the message to this place
//! ```

use std::io::{BufRead, Write};

use dlock::{Fair, Locks};
use tokio::{runtime::Runtime, task::JoinSet};

use super::{holds::Hold, ring::Ring};
use crate::{Failure, clock, runtime::Flavour};

/// The address of the store. Its presence makes a process a child.
pub(super) const URL: &str = "DLOCK_BENCH_CHILD_OF";

/// The address of the store, in a child.
pub(crate) fn url() -> Option<String> {
    std::env::var(URL).ok()
}

/// Serves the parent until it closes the pipe.
pub(crate) fn serve(url: &str) -> Result<(), Failure> {
    let runtime = Flavour::CurrentThread.start()?;
    let mut child = Child { url, clients: Vec::new(), ring: None };
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let words: Vec<&str> = line.split(' ').collect();
        let answer = match child.obey(&runtime, &words) {
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
    ring: Option<Ring>,
}

impl Child<'_> {
    fn obey(&mut self, runtime: &Runtime, words: &[&str]) -> Result<String, Failure> {
        match *words {
            ["connect", clients] => runtime.block_on(self.connect(clients.parse()?)),
            ["contend", name, clients, from, until] => {
                let (from, until) = (from.parse()?, until.parse()?);
                let clients = self.clients.iter().take(clients.parse()?);
                let locks = clients.map(|locks| locks.fair(name)).collect::<Result<_, _>>()?;
                runtime.block_on(contend(locks, from, until))
            }
            ["join", place] => {
                if self.ring.is_none() {
                    self.ring = Some(runtime.block_on(Ring::join(self.url, place))?);
                }
                Ok(String::new())
            }
            ["ring", place, next, from, until] => {
                let ring = self.ring.as_mut().ok_or("ring before join")?;
                let (from, until) = (from.parse()?, until.parse()?);
                let took = runtime.block_on(ring.go(place == "0", next, from, until))?;
                Ok(took.iter().map(|took| format!("{} ", took.as_nanos())).collect())
            }
            _ => Err(format!("no such command: {words:?}").into()),
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
    let mut clients: JoinSet<Result<String, Failure>> = JoinSet::new();
    for lock in locks {
        clients.spawn(async move {
            let mut holds = String::new();
            clock::sleep_until(from).await;
            while clock::now() < until {
                let guard = lock.lock().await?;
                let got = clock::now();
                let token = guard.token().get();
                let left = clock::now();
                guard.release().await?;
                holds += &format!("{} ", Hold { process: 0, token, got, left });
            }
            Ok(holds)
        });
    }
    let mut all = String::new();
    while let Some(done) = clients.join_next().await {
        all += &done??;
    }
    Ok(all)
}
