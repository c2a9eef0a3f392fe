//! The protocol between the parent and a subject, and the workloads. The first line names the work,
//! and the second the time, so the preparation is not measured. Times are those of
//! [`crate::clock::now`], which all processes of the machine share.
//!
//! ```text
//! uncontended NAME       -> ok     one task
//! multi NAMES NAME       -> ok     one task, NAMES names together
//! spread NAME TASKS      -> ok     each task has a separate name
//! local NAME TASKS       -> ok     all tasks want one lock, and queue for it
//! rw NAME TASKS READS    -> ok     READS of 100 read
//! contend NAME TASKS US  -> ok     all tasks want one fair lock, held once before; each holds it for
//!                                  so many microseconds
//! queue NAME TASKS       -> ok     all tasks want one fair lock, once each; it is held once before
//!
//! go FROM UNTIL          -> ok P50 P99 CYCLES            of one task, in nanoseconds
//!                        -> ok CYCLES...                 of each task
//!                        -> ok TASK:TOKEN:GOT:LEFT...    each hold of the fair lock
//! ```
//! An answer that begins with `error` contains the reason of a failure.

use std::{
    fmt::Write as _,
    io::{BufRead, Write as _},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{
    runtime::Runtime,
    sync::mpsc,
    task::{JoinSet, coop::consume_budget, yield_now},
};

use super::{Lock, Subject, Want, Witness};
use crate::{Failure, clock};

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
    Queue(Vec<L>),
}

async fn obey<S: Subject>(
    subject: &S,
    next: &mut Option<Work<S::Lock>>,
    words: &[&str],
) -> Result<String, Failure> {
    if let ["go", from, until] = *words {
        let span = Span::parse(from, until)?;
        return match next.take().ok_or("nothing is to be done")? {
            Work::Uncontended(lock) => uncontended(lock, span).await,
            Work::Counts(locks) => counts(locks, (), span).await,
            Work::Crowd(locks) => counts(locks, CrowdWitness::default(), span).await,
            Work::Mostly(locks) => counts(locks, (), span).await,
            Work::Holds(locks, hold) => holds(locks, hold, usize::MAX, span).await,
            Work::Queue(locks) => holds(locks, Duration::ZERO, 1, span).await,
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
            let locks = fair(subject, name, tasks.parse()?).await?;
            Work::Holds(locks, Duration::from_micros(hold.parse()?))
        }
        ["queue", name, tasks] => Work::Queue(fair(subject, name, tasks.parse()?).await?),
        _ => return Ok(None),
    }))
}

/// Returns a fair lock for each task.
async fn fair<S: Subject>(subject: &S, name: &str, tasks: u32) -> Result<Vec<S::Lock>, Failure> {
    let mut locks = Vec::new();
    for _ in 0..tasks {
        locks.push(subject.lock(Want::Fair(name)).await?);
    }
    // Acquires the lock once, so that the store creates what a new name needs, such as a directory.
    if let Some(first) = locks.first_mut() {
        first.cycle(&mut ()).await?;
    }
    Ok(locks)
}

/// The time for which waiting tasks may continue after the end of a run, so that the lock is free
/// in the next run. A task that polls and has not got the lock by then is dropped.
const GRACE: Duration = Duration::from_secs(1);

/// The time for which a process continues after its part, so that the background work of a release
/// does not run in the next round. The same applies to a waiter that the release notifies.
const STRAGGLERS: Duration = Duration::from_millis(20);

/// The time from one moment to another.
#[derive(Clone, Copy, Debug)]
struct Span {
    from: u64,
    until: u64,
}

impl Span {
    fn parse(from: &str, until: &str) -> Result<Self, Failure> {
        Ok(Self { from: from.parse()?, until: until.parse()? })
    }

    /// Waits until the span is over, and a while longer for tasks that still run. Returns the first
    /// failure.
    async fn over(self, mut tasks: JoinSet<Result<(), Failure>>) -> Result<(), Failure> {
        let all = async {
            while let Some(done) = tasks.join_next().await {
                done??;
            }
            Ok::<_, Failure>(())
        };
        tokio::select! {
            done = all => done?,
            () = clock::sleep_until(self.until + nanos(GRACE)) => {}
        }
        tasks.shutdown().await;
        tokio::time::sleep(STRAGGLERS).await;
        Ok(())
    }
}

/// Runs one cycle after another. Returns the median, the 99th percentile, and the number of cycles.
async fn uncontended(mut lock: impl Lock, span: Span) -> Result<String, Failure> {
    // On a spawned task, as an application's requests: the runtime has to wake up the future that
    // it blocks on.
    let mut task: JoinSet<Result<Vec<u64>, Failure>> = JoinSet::new();
    task.spawn(async move {
        clock::sleep_until(span.from).await;
        let mut took = Vec::new();
        let mut start = clock::now();
        while start < span.until || took.is_empty() {
            lock.cycle(&mut ()).await?;
            let end = clock::now();
            took.push(end - start);
            start = end;
        }
        Ok(took)
    });
    let mut took = task.join_next().await.ok_or("no task")???;
    took.sort_unstable();
    let at = |percent: usize| took[(took.len() * percent / 100).min(took.len() - 1)];
    Ok(format!("{} {} {}", at(50), at(99), took.len()))
}

/// Runs a task for each lock. Returns the number of cycles that each has completed in time.
async fn counts<L, W>(locks: Vec<L>, witness: W, span: Span) -> Result<String, Failure>
where
    L: Lock,
    W: Witness + Clone + 'static,
{
    let (mut tasks, mut counts) = (JoinSet::new(), Vec::new());
    for mut lock in locks {
        let (count, mut witness) = (Arc::new(AtomicU64::new(0)), witness.clone());
        counts.push(Arc::clone(&count));
        tasks.spawn(async move {
            clock::sleep_until(span.from).await;
            while clock::now() < span.until {
                // Yields as other code of an application does: a free lock never makes the task
                // wait.
                consume_budget().await;
                lock.cycle(&mut witness).await?;
                let late = clock::now() >= span.until;
                count.fetch_add(u64::from(!late), Ordering::Relaxed);
            }
            Ok(())
        });
    }
    span.over(tasks).await?;
    Ok(words(counts.iter().map(|count| count.load(Ordering::Relaxed))))
}

/// Runs a task for each lock, which holds it for this time, and at most so many times. Returns the
/// holds of all tasks with their times.
async fn holds<L: Lock>(
    locks: Vec<L>,
    hold: Duration,
    turns: usize,
    span: Span,
) -> Result<String, Failure> {
    let mut tasks = JoinSet::new();
    let all = Arc::new(Mutex::new(String::new()));
    for (task, mut lock) in locks.into_iter().enumerate() {
        let mut scribe = Scribe { task, hold, all: Arc::clone(&all) };
        tasks.spawn(async move {
            clock::sleep_until(span.from).await;
            let mut turn = 0;
            while clock::now() < span.until && turn < turns {
                consume_budget().await;
                lock.cycle(&mut scribe).await?;
                turn += 1;
            }
            Ok(())
        });
    }
    span.over(tasks).await?;
    Ok(std::mem::take(&mut *all.lock().unwrap_or_else(PoisonError::into_inner)))
}

/// Yields during the first hold until all other tasks have queued. Otherwise each task of a thread
/// would find the lock free for as long as the scheduler lets it run, and no task would ever wait.
#[derive(Clone, Default)]
struct CrowdWitness {
    has_come: bool,
}

impl Witness for CrowdWitness {
    async fn held(&mut self, _token: Option<u64>) {
        if !std::mem::replace(&mut self.has_come, true) {
            yield_now().await;
        }
    }
}

/// Records each hold: `TASK:TOKEN:GOT:LEFT`.
struct Scribe {
    task: usize,
    hold: Duration,
    all: Arc<Mutex<String>>,
}

impl Witness for Scribe {
    async fn held(&mut self, token: Option<u64>) {
        let got = clock::now();
        // Without a token, the times determine the order.
        let token = token.unwrap_or(got);
        let mut left = got;
        if !self.hold.is_zero() {
            tokio::time::sleep(self.hold).await;
            left = clock::now();
        }
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        // Writing to a string does not fail.
        let _ = write!(all, "{}:{token}:{got}:{left} ", self.task);
    }
}

/// A read-write lock that is mostly read-locked.
struct Mostly<L> {
    read: L,
    write: L,
    /// The number of reads in 100 cycles.
    reads: u32,
    turn: u32,
}

impl<L: Lock> Mostly<L> {
    /// Different values of `begins` make tasks write at different times.
    fn new(read: L, write: L, reads: u32, begins: u32) -> Self {
        Self { read, write, reads, turn: begins }
    }
}

impl<L: Lock> Lock for Mostly<L> {
    async fn cycle<W: Witness>(&mut self, witness: &mut W) -> Result<(), Failure> {
        // Spreads the writes evenly without random numbers: 37 and 100 have no common divisor.
        self.turn = (self.turn + 37) % 100;
        let side = if self.turn < self.reads { &mut self.read } else { &mut self.write };
        side.cycle(witness).await
    }
}

fn words(values: impl Iterator<Item = u64>) -> String {
    values.map(|value| format!("{value} ")).collect()
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
