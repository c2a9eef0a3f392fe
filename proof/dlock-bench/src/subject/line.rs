//! The protocol between the parent and a subject. The first line names the work, and the second the
//! time, so the preparation is not measured. Times are those of [`crate::clock::now`], which all
//! processes of the machine share.
//!
//! ```text
//! uncontended NAME       -> ok     one task
//! multi NAMES NAME       -> ok     one task, NAMES names together
//! spread NAME TASKS      -> ok     each task has a separate name
//! local NAME TASKS       -> ok     all tasks want one lock, and queue for it
//! rw NAME TASKS READS    -> ok     READS of 100 read
//! contend NAME TASKS US  -> ok     all tasks want one fair lock, held once before; each holds it for
//!                                  so many microseconds
//!
//! go FROM UNTIL          -> ok P50 P99 CYCLES            of one task, in nanoseconds
//!                        -> ok CYCLES...                 of each task
//!                        -> ok TASK:TOKEN:GOT:LEFT...    each hold of the fair lock
//! ```
//! An answer that begins with `error` contains the reason of a failure.

use std::{
    io::{BufRead, Write},
    time::Duration,
};

use tokio::{runtime::Runtime, sync::mpsc};

use super::{
    Lock, Subject, Want,
    work::{self, CrowdWitness, Mostly, Span},
};
use crate::Failure;

/// Answers the parent's lines until the parent closes the pipe.
pub(crate) fn serve(runtime: &Runtime, subject: &impl Subject) -> Result<(), Failure> {
    let (lines, mut read) = mpsc::channel(1);
    // The runtime must run between the lines too, because it keeps sessions alive.
    std::thread::spawn(move || {
        let mut all = std::io::stdin().lock().lines().map_while(Result::ok);
        all.all(|line| lines.blocking_send(line).is_ok())
    });
    let mut next = None;
    runtime.block_on(async {
        while let Some(line) = read.recv().await {
            let words: Vec<&str> = line.split(' ').collect();
            let answer = match obey(subject, &mut next, &words).await {
                Ok(answer) => format!("ok {answer}"),
                Err(failure) => format!("error {}", failure.to_string().replace('\n', " ")),
            };
            let mut out = std::io::stdout().lock();
            writeln!(out, "{answer}")?;
            out.flush()?;
        }
        Ok(())
    })
}

/// A workload with its locks.
enum Work<L> {
    Uncontended(L),
    Counts(Vec<L>),
    Crowd(Vec<L>),
    Mostly(Vec<Mostly<L>>),
    Holds(Vec<L>, Duration),
}

async fn obey<S: Subject>(
    subject: &S,
    next: &mut Option<Work<S::Lock>>,
    words: &[&str],
) -> Result<String, Failure> {
    if let ["go", from, until] = *words {
        let span = Span::parse(from, until)?;
        return match next.take().ok_or("nothing is to be done")? {
            Work::Uncontended(lock) => work::uncontended(lock, span).await,
            Work::Counts(locks) => work::counts(locks, (), span).await,
            Work::Crowd(locks) => work::counts(locks, CrowdWitness::default(), span).await,
            Work::Mostly(locks) => work::counts(locks, (), span).await,
            Work::Holds(locks, hold) => work::holds(locks, hold, span).await,
        };
    }
    match prepare(subject, words).await? {
        Some(work) => {
            *next = Some(work);
            Ok(String::new())
        }
        None => subject.more(words).await,
    }
}

/// Returns the workload of a line with its locks; `None` if the line is another command.
async fn prepare<S: Subject>(
    subject: &S,
    words: &[&str],
) -> Result<Option<Work<S::Lock>>, Failure> {
    let mut locks = Vec::new();
    Ok(Some(match *words {
        ["uncontended", name] => Work::Uncontended(subject.lock(Want::One(name)).await?),
        ["multi", names, name] => {
            let names: Vec<_> = (0..names.parse()?).map(|i: u32| format!("{name}/{i}")).collect();
            Work::Uncontended(subject.lock(Want::All(&names)).await?)
        }
        ["spread", name, tasks] => {
            for task in 0..tasks.parse::<u32>()? {
                locks.push(subject.lock(Want::One(&format!("{name}/{task}"))).await?);
            }
            Work::Counts(locks)
        }
        ["local", name, tasks] => {
            for _ in 0..tasks.parse::<u32>()? {
                locks.push(subject.lock(Want::One(name)).await?);
            }
            Work::Crowd(locks)
        }
        ["rw", name, tasks, reads] => {
            let (reads, mut locks) = (reads.parse()?, Vec::new());
            for task in 0..tasks.parse()? {
                let read = subject.lock(Want::Read(name)).await?;
                let write = subject.lock(Want::Write(name)).await?;
                locks.push(Mostly::new(read, write, reads, task));
            }
            Work::Mostly(locks)
        }
        ["contend", name, tasks, hold] => {
            for _ in 0..tasks.parse::<u32>()? {
                locks.push(subject.lock(Want::Fair(name)).await?);
            }
            // Acquires the lock once, so that the store creates what a new name needs, such as a
            // directory.
            if let Some(first) = locks.first_mut() {
                first.cycle(&mut ()).await?;
            }
            Work::Holds(locks, Duration::from_micros(hold.parse()?))
        }
        _ => return Ok(None),
    }))
}
