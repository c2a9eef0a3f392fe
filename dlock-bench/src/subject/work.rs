//! What a subject is measured with.

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

/// How long those who still wait when the time is over may go on, so that the lock is nobody's for
/// the next run. Who polls and has bad luck is given up then.
const GRACE: Duration = Duration::from_secs(1);

/// How long a process goes on after it has done its part: what a release has left to do in the
/// background would wait for the next run otherwise, and so would whoever is told by it.
const STRAGGLERS: Duration = Duration::from_millis(20);

/// From one time until another.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    from: u64,
    until: u64,
}

impl Span {
    pub(super) fn parse(from: &str, until: &str) -> Result<Self, Failure> {
        Ok(Self { from: from.parse()?, until: until.parse()? })
    }

    /// Waits until it is over, and a while for those who are still at it. The first failure.
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

/// One cycle after another: the median, the 99th percentile, and how many there were.
pub(super) async fn quiet(mut lock: impl Lock, span: Span) -> Result<String, Failure> {
    // Where an application's requests run: the future that a runtime blocks on has to wake it up.
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

/// A task for each lock: how many cycles each has got done in time.
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
                // As the rest of an application does: a lock that is free never makes it wait.
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

/// A task for each lock: who held it when.
pub(super) async fn holds<L: Lock>(locks: Vec<L>, span: Span) -> Result<String, Failure> {
    let mut tasks = JoinSet::new();
    let all = Arc::new(Mutex::new(String::new()));
    for (task, mut lock) in locks.into_iter().enumerate() {
        let mut scribe = Scribe { task, all: Arc::clone(&all) };
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

/// Holds on, the first time, until all others have asked. Tasks of one thread would find the lock
/// free otherwise, each for as long as the scheduler lets it run, and nobody would ever wait.
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

/// Writes down each hold: `TASK:TOKEN:GOT:LEFT`.
struct Scribe {
    task: usize,
    all: Arc<Mutex<String>>,
}

impl Witness for Scribe {
    async fn held(&mut self, token: Option<u64>) {
        let now = clock::now();
        // Without a token, the times have to say who came after whom.
        let token = token.unwrap_or(now);
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        // To a string, it does not fail.
        let _ = write!(all, "{}:{token}:{now}:{now} ", self.task);
    }
}

/// A read-write lock that is mostly read.
pub(super) struct Mostly<L> {
    read: L,
    write: L,
    /// Of 100.
    reads: u32,
    turn: u32,
}

impl<L: Lock> Mostly<L> {
    /// Who `begins` elsewhere does not write when the others do.
    pub(super) fn new(read: L, write: L, reads: u32, begins: u32) -> Self {
        Self { read, write, reads, turn: begins }
    }
}

impl<L: Lock> Lock for Mostly<L> {
    async fn cycle<W: Witness>(&mut self, witness: &mut W) -> Result<(), Failure> {
        // Spread evenly, without chance: 37 and 100 have no common divisor.
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
