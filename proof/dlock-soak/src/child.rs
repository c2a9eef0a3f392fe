//! The child's side: this binary, started again. Its tasks acquire locks until the parent ends
//! them. It records the times in which it did not run, and its open resources.
//!
//! The parent writes one line for each order: `process N`, `store ADDRESS`, `log FILE`,
//! `resource SOCKET`, `seed N`, the options of [`Load`](super::Load), and `go`. The child answers
//! `ready`. Then:
//!
//! ```text
//! stall MS             -> stalled NS     no thread of its runtime runs for this time
//! abort                -> aborted N      its tasks are aborted, and others begin
//! cancels PERCENT MS   -> cancelled N    attempts are cancelled
//! calm, well           ->                the phase of the run
//! end                  -> done           once all locks are released
//! ```

use std::{
    io::Write,
    path::Path,
    sync::{Arc, Barrier, atomic::Ordering},
    time::Duration,
};

use dlock_core::{DynBackend, Error, Fairness, Instant, Locks, OrphanRelease, Permits};
use dlock_testkit::{
    Stop, Verdict,
    support::{connected, ensure, now},
};
use tokio::{runtime::Handle, sync::watch, task::JoinSet, time::sleep};

use super::{
    line::{Phase, What, When},
    log::Log,
    plan::{Kind, Orders, Target},
    worker::{Cancels, Worker},
};

/// The variable that makes a process a child.
pub(super) const CHILD: &str = "DLOCK_TEST_LOAD";

/// The number of threads of its runtime.
const THREADS: usize = 2;

/// The longest time that the releases of dropped guards may take.
const RELEASES: Duration = Duration::from_secs(10);

/// The time for which dropped operations may continue in the background before they count as
/// leaked.
const SETTLE: Duration = Duration::from_millis(300);

/// The interval between two checks.
const EVERY: Duration = Duration::from_millis(5);

/// The delay of a check that is recorded as a time in which the process did not run.
const LATE: Duration = Duration::from_millis(5);

/// The working time after which a process counts as warm.
const WARM: Duration = Duration::from_secs(1);

pub(super) fn is_one() -> bool {
    std::env::var_os(CHILD).is_some()
}

/// Serves the parent until the parent ends it.
pub(super) fn serve<C, F>(connect: C) -> !
where
    C: Fn(String) -> F,
    F: Future<Output = Result<DynBackend, Error>>,
{
    let code = match served(connect) {
        Ok(()) => 0,
        Err(stop) => {
            say(&format!("error {}", stop.into_text().replace('\n', " ")));
            1
        }
    };
    std::process::exit(code)
}

fn served<C, F>(connect: C) -> Verdict
where
    C: Fn(String) -> F,
    F: Future<Output = Result<DynBackend, Error>>,
{
    die_with_parent();
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(THREADS).enable_all().build()?;
    let mut lines = std::io::stdin().lines();
    let mut orders = Orders::default();
    loop {
        let line = lines.next().ok_or_else(|| Stop::failed("no orders"))??;
        if line == "go" {
            break;
        }
        orders.take(&line)?;
    }
    // The store may be unreachable or busy when the process starts.
    let locks = runtime.block_on(async {
        let backend = connected(|| connect(orders.store.clone())).await?;
        Ok::<_, Stop>(Locks::new(backend)?)
    })?;
    let (phase, phases) = watch::channel(Phase::Storm);
    let log = Log::open(orders.process, Path::new(&orders.log), Path::new(&orders.resource))?;
    let mut crew = runtime.block_on(async { Crew::begin(locks, orders, phases, log) })?;
    say("ready");
    for line in lines {
        let line = line?;
        let words: Vec<&str> = line.split(' ').collect();
        match *words {
            ["stall", ms] => {
                let time = Duration::from_millis(ms.parse()?);
                let stalled = stall(runtime.handle(), THREADS, time)?;
                say(&format!("stalled {}", stalled.as_nanos()));
            }
            ["abort"] => say(&format!("aborted {}", runtime.block_on(crew.abort())?)),
            ["cancels", percent, ms] => {
                let (percent, time) = (percent.parse()?, Duration::from_millis(ms.parse()?));
                let cancelled = runtime.block_on(crew.cancel(percent, time));
                say(&format!("cancelled {cancelled}"));
            }
            _ => {
                let next = line.parse()?;
                phase.send_replace(next);
                if next == Phase::End {
                    runtime.block_on(crew.end())?.map_or(Ok(()), Err)?;
                    say("done");
                    return Ok(());
                }
            }
        }
    }
    Err(Stop::failed("the parent has gone"))
}

fn say(what: &str) {
    let mut out = std::io::stdout().lock();
    // If the parent no longer reads, it has ended.
    let _ = writeln!(out, "{what}").and_then(|()| out.flush());
}

/// Makes the child die with its parent: a stopped child would otherwise outlive a killed parent.
fn die_with_parent() {
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{Signal, set_parent_process_death_signal};
        // If this fails, the child sees the end of its pipe.
        let _ = set_parent_process_death_signal(Some(Signal::KILL));
    }
}

/// The tasks of a process.
pub(super) struct Crew {
    locks: Locks,
    /// A second client of the store.
    second: Locks,
    orders: Orders,
    log: Arc<Log>,
    targets: Arc<[Target]>,
    phases: watch::Receiver<Phase>,
    cancels: Arc<Cancels>,
    workers: JoinSet<Verdict>,
    /// The number of the next task. Numbers of aborted tasks are not used again.
    next: usize,
    self_check: JoinSet<Verdict>,
}

impl Crew {
    /// Starts the tasks; the caller must be within the runtime.
    pub(super) fn begin(
        locks: Locks,
        orders: Orders,
        phases: watch::Receiver<Phase>,
        log: Log,
    ) -> Result<Self, Stop> {
        let given = locks.guarantees();
        let can = |target: &&Target| match target.kind {
            Kind::Fair => given.fairness >= Fairness::Fifo,
            Kind::Semaphore(_) => given.permits >= Permits::Counted,
            _ => true,
        };
        let mut targets: Vec<Target> = orders.targets.iter().filter(can).cloned().collect();
        if given.orphan_release == OrphanRelease::SessionEnd {
            let jobs = targets.iter_mut().filter(|target| matches!(target.kind, Kind::Job(_)));
            jobs.for_each(|job| job.kind = Kind::Job(Duration::ZERO));
        }
        let targets = targets.into();
        let log = Arc::new(log);
        let cancels = Arc::new(Cancels::default());
        cancels.percent.store(orders.cancels, Ordering::Relaxed);
        let mut self_check = JoinSet::new();
        self_check.spawn(record_pauses(Arc::clone(&log)));
        self_check.spawn(record_early(Arc::clone(&log)));
        let (workers, second) = (JoinSet::new(), Locks::new(Arc::clone(locks.backend()))?);
        let mut crew = Self {
            locks,
            second,
            orders,
            log,
            targets,
            phases,
            cancels,
            workers,
            next: 0,
            self_check,
        };
        crew.work();
        Ok(crew)
    }

    fn work(&mut self) {
        for _ in 0..self.orders.tasks {
            let worker = Worker::new(
                self.next,
                self.orders.seed,
                self.locks.clone(),
                Arc::clone(&self.log),
                Arc::clone(&self.targets),
                self.phases.clone(),
            );
            let Orders { lease, lock_delay, long, .. } = self.orders;
            let worker = worker.with_lease(lease, lock_delay, long).with_second(&self.second);
            self.workers.spawn(worker.with_cancels(Arc::clone(&self.cancels)).work());
            self.next += 1;
        }
    }

    /// Aborts all tasks and starts new ones. Returns the number of aborted tasks.
    async fn abort(&mut self) -> Result<usize, Stop> {
        // The line is written before the first task ends, so that no hold counts for longer than
        // it lasted.
        self.log.write_own(now(), What::Abort { below: self.next })?;
        self.workers.abort_all();
        let mut aborted = 0;
        while let Some(task) = self.workers.join_next().await {
            match task {
                Err(error) if error.is_cancelled() => aborted += 1,
                ended => ended??,
            }
        }
        self.work();
        Ok(aborted)
    }

    /// Cancels this percentage of attempts for this time. Returns the number of cancelled attempts.
    async fn cancel(&self, percent: u32, time: Duration) -> usize {
        let Cancels { percent: now, dropped } = &*self.cancels;
        let before = dropped.load(Ordering::Relaxed);
        now.store(percent, Ordering::Relaxed);
        sleep(time).await;
        now.store(self.orders.cancels, Ordering::Relaxed);
        dropped.load(Ordering::Relaxed) - before
    }

    /// Shuts down in order, once the phase requires it. Returns the error of the shutdown, if the
    /// store has not answered in time.
    pub(super) async fn end(mut self) -> Result<Option<Error>, Stop> {
        while let Some(task) = self.workers.join_next().await {
            task??;
        }
        self.self_check.shutdown().await;
        sleep(SETTLE).await;
        record_resources(&self.log, When::Idle)?;
        for locks in [&self.locks, &self.second] {
            if let Err(error) = locks.shutdown(RELEASES).await {
                return Ok(Some(error));
            }
        }
        record_resources(&self.log, When::End)?;
        Ok(None)
    }
}

/// Blocks every worker thread of the runtime for this time, from outside of it. Returns the time
/// for which all of them were blocked together.
fn stall(runtime: &Handle, threads: usize, time: Duration) -> Result<Duration, Stop> {
    let all_in = Arc::new(Barrier::new(threads));
    let block = |_| {
        let all_in = Arc::clone(&all_in);
        // No task continues before each of them has its own thread.
        let blocking = async move {
            all_in.wait();
            let from = now();
            std::thread::sleep(time);
            (from, now())
        };
        runtime.spawn(blocking)
    };
    let blocked: Vec<_> = (0..threads).map(block).collect();
    let mut together = (Instant::from_nanos(0), Instant::from_nanos(u64::MAX));
    for task in blocked {
        let (from, to) = runtime.block_on(task)?;
        together = (together.0.max(from), together.1.min(to));
    }
    let stalled = together.1.since(together.0);
    ensure!(!stalled.is_zero(), "the threads were not blocked together");
    Ok(stalled)
}

/// Records each time in which timers did not fire: the process was stopped, its threads were
/// blocked, or the machine was too busy.
async fn record_pauses(log: Arc<Log>) -> Verdict {
    loop {
        let since = now();
        sleep(EVERY).await;
        let at = now();
        if at.since(since) > EVERY + LATE {
            log.write_own(at, What::Late { since })?;
        }
    }
}

/// Records the resources that the process uses once it is warm.
async fn record_early(log: Arc<Log>) -> Verdict {
    sleep(WARM).await;
    record_resources(&log, When::Early)
}

/// Records the resources that the process uses, if the system shows them.
fn record_resources(log: &Log, when: When) -> Verdict {
    let count = |of: &str| match log.is_simulated() {
        // The process has nothing of its own but tasks.
        true => Ok(0),
        false => std::fs::read_dir(of).map(Iterator::count),
    };
    let (Ok(fds), Ok(threads)) = (count("/proc/self/fd"), count("/proc/self/task")) else {
        return Ok(());
    };
    let tasks = Handle::current().metrics().num_alive_tasks();
    log.write_own(now(), What::Uses { when, fds, tasks, threads })
}
