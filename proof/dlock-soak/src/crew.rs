//! The tasks of a child, and the faults that affect all of them at once.

use std::{
    path::Path,
    sync::{Arc, Barrier, atomic::Ordering},
    time::Duration,
};

use dlock_core::{Fairness, Instant, Locks, Permits};
use dlock_testkit::{
    Stop, Verdict,
    support::{ensure, now},
};
use tokio::{runtime::Handle, sync::watch, task::JoinSet, time::sleep};

use super::{
    line::{Phase, What, When},
    log::Log,
    orders::Orders,
    plan::{Kind, Target},
    self_check,
    worker::{Cancels, Worker},
};

/// The longest time that the releases of dropped guards may take.
const LETTING_GO: Duration = Duration::from_secs(10);

/// The time for which dropped operations may continue in the background before they count as
/// leaked.
const SETTLE: Duration = Duration::from_millis(300);

/// The tasks of a child.
pub(super) struct Crew {
    locks: Locks,
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
    ) -> Result<Self, Stop> {
        let given = locks.guarantees();
        let can = |target: &&Target| match target.kind {
            Kind::Fair => given.fairness >= Fairness::Fifo,
            Kind::Semaphore(_) => given.permits >= Permits::Counted,
            Kind::Mutex | Kind::ReadWrite | Kind::Multi => true,
        };
        let targets: Arc<[Target]> = orders.targets.iter().filter(can).cloned().collect();
        let (file, resource) = (Path::new(&orders.log), Path::new(&orders.resource));
        let log = Arc::new(Log::open(orders.process, file, resource)?);
        let cancels = Arc::new(Cancels::default());
        cancels.percent.store(orders.cancels, Ordering::Relaxed);
        let mut self_check = JoinSet::new();
        self_check.spawn(self_check::run(Arc::clone(&log)));
        self_check.spawn(self_check::early(Arc::clone(&log)));
        let workers = JoinSet::new();
        let mut crew =
            Self { locks, orders, log, targets, phases, cancels, workers, next: 0, self_check };
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
            let worker = worker.with_lease(self.orders.lease);
            self.workers.spawn(worker.with_cancels(Arc::clone(&self.cancels)).work());
            self.next += 1;
        }
    }

    /// Aborts all tasks and starts new ones. Returns the number of aborted tasks.
    pub(super) async fn abort(&mut self) -> Result<usize, Stop> {
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
    pub(super) async fn cancel(&self, percent: u32, time: Duration) -> usize {
        let Cancels { percent: now, dropped } = &*self.cancels;
        let before = dropped.load(Ordering::Relaxed);
        now.store(percent, Ordering::Relaxed);
        sleep(time).await;
        now.store(self.orders.cancels, Ordering::Relaxed);
        dropped.load(Ordering::Relaxed) - before
    }

    /// Shuts down in order, once the phase requires it.
    pub(super) async fn end(mut self) -> Verdict {
        while let Some(task) = self.workers.join_next().await {
            task??;
        }
        self.self_check.shutdown().await;
        sleep(SETTLE).await;
        self_check::record_resources(&self.log, When::Idle)?;
        self.locks.shutdown(LETTING_GO).await?;
        self_check::record_resources(&self.log, When::End)
    }
}

/// Blocks every worker thread of the runtime for this time, from outside of it. Returns the time
/// for which all of them were blocked together.
pub(super) fn stall(runtime: &Handle, threads: usize, time: Duration) -> Result<Duration, Stop> {
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
