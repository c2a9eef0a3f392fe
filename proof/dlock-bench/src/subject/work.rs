//! The workloads of a subject.

use std::{
    fmt::Write,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::task::{JoinSet, coop::consume_budget, yield_now};

use super::{Lock, Witness};
use crate::{Failure, clock};

/// The time for which waiting tasks may continue after the end of a run, so that the lock is free
/// in the next run. A task that polls and has not got the lock by then is dropped.
const GRACE: Duration = Duration::from_secs(1);

/// The time for which a process continues after its part, so that the background work of a release
/// does not run in the next round. The same applies to a waiter that the release notifies.
const STRAGGLERS: Duration = Duration::from_millis(20);

/// The time from one moment to another.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    from: u64,
    until: u64,
}

impl Span {
    pub(super) fn parse(from: &str, until: &str) -> Result<Self, Failure> {
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
pub(super) async fn uncontended(mut lock: impl Lock, span: Span) -> Result<String, Failure> {
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
pub(super) async fn counts<L, W>(locks: Vec<L>, witness: W, span: Span) -> Result<String, Failure>
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

/// Runs a task for each lock, which holds it for this time. Returns the holds of all tasks with their
/// times.
pub(super) async fn holds<L: Lock>(
    locks: Vec<L>,
    hold: Duration,
    span: Span,
) -> Result<String, Failure> {
    let mut tasks = JoinSet::new();
    let all = Arc::new(Mutex::new(String::new()));
    for (task, mut lock) in locks.into_iter().enumerate() {
        let mut scribe = Scribe { task, hold, all: Arc::clone(&all) };
        tasks.spawn(async move {
            clock::sleep_until(span.from).await;
            while clock::now() < span.until {
                consume_budget().await;
                lock.cycle(&mut scribe).await?;
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
pub(super) struct CrowdWitness {
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
pub(super) struct Mostly<L> {
    read: L,
    write: L,
    /// The number of reads in 100 cycles.
    reads: u32,
    turn: u32,
}

impl<L: Lock> Mostly<L> {
    /// Different values of `begins` make tasks write at different times.
    pub(super) fn new(read: L, write: L, reads: u32, begins: u32) -> Self {
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
