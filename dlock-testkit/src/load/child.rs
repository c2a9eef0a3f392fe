//! The child's side: this binary started again, with tasks that take locks until the parent says
//! that it is enough.
//!
//! The parent writes, one line each: `store ADDRESS`, `log FILE`, `resource SOCKET`, `seed N`, what
//! there is in [`Load`](super::Load), and `go`; the child answers `ready`. Then `calm`, `well` and
//! `end`, and the child answers `done` to the last, once all its locks are let go.

use std::{io::Write, path::Path, sync::Arc, time::Duration};

use dlock_core::{DynBackend, Error, Fairness, Locks, Permits};
use tokio::{sync::watch, task::JoinSet, time::sleep};

use super::{
    line::Phase,
    log::Log,
    plan::{Kind, Target},
    worker::Worker,
};
use crate::{Stop, Verdict};

/// Makes a process a child.
pub(super) const CHILD: &str = "DLOCK_TEST_LOAD";

/// How long the releases of what was dropped may take.
const LETTING_GO: Duration = Duration::from_secs(10);

/// How often it tries to connect, since it may be born while the store is away.
const ATTEMPTS: u32 = 40;

pub(super) fn is_one() -> bool {
    std::env::var_os(CHILD).is_some()
}

/// Serves the parent until it has enough.
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
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let mut lines = std::io::stdin().lines();
    let mut orders = Orders::default();
    loop {
        let line = lines.next().ok_or_else(|| Stop::failed("no orders"))??;
        if line == "go" {
            break;
        }
        orders.take(&line)?;
    }
    let locks = runtime.block_on(connected(connect, &orders.store))?;
    let (phase, phases) = watch::channel(Phase::Storm);
    let mut tasks = runtime.block_on(async { begin(&locks, &orders, &phases) })?;
    say("ready");
    for line in lines {
        phase.send_replace(line?.parse()?);
        if *phase.borrow() == Phase::End {
            return runtime.block_on(async {
                while let Some(task) = tasks.join_next().await {
                    task??;
                }
                locks.shutdown(LETTING_GO).await?;
                say("done");
                Ok(())
            });
        }
    }
    Err(Stop::failed("the parent has gone"))
}

/// What the parent wants.
#[derive(Default)]
struct Orders {
    store: String,
    log: String,
    resource: String,
    seed: u64,
    tasks: usize,
    lease: Duration,
    cancels: u32,
    targets: Vec<Target>,
}

impl Orders {
    fn take(&mut self, line: &str) -> Verdict {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "store" => rest.clone_into(&mut self.store),
            "log" => rest.clone_into(&mut self.log),
            "resource" => rest.clone_into(&mut self.resource),
            "seed" => self.seed = rest.parse()?,
            "tasks" => self.tasks = rest.parse()?,
            "lease" => self.lease = Duration::from_millis(rest.parse()?),
            "cancels" => self.cancels = rest.parse()?,
            "lock" => self.targets.push(rest.parse()?),
            _ => return Err(Stop::failed(format!("no such order: {line}"))),
        }
        Ok(())
    }
}

async fn connected<C, F>(connect: C, store: &str) -> Result<Locks, Stop>
where
    C: Fn(String) -> F,
    F: Future<Output = Result<DynBackend, Error>>,
{
    let mut tries = 0;
    loop {
        match connect(store.to_owned()).await {
            Ok(backend) => return Ok(Locks::over(backend)?),
            Err(error) if !error.is_transient() || tries == ATTEMPTS => return Err(error.into()),
            Err(_) => sleep(Duration::from_millis(100)).await,
        }
        tries += 1;
    }
}

fn begin(
    locks: &Locks,
    orders: &Orders,
    phases: &watch::Receiver<Phase>,
) -> Result<JoinSet<Verdict>, Stop> {
    let given = locks.guarantees();
    let can = |target: &&Target| match target.kind {
        Kind::Fair => given.fairness >= Fairness::Fifo,
        Kind::Semaphore(_) => given.permits >= Permits::Counted,
        Kind::Mutex | Kind::ReadWrite | Kind::Multi => true,
    };
    let targets: Arc<[Target]> = orders.targets.iter().filter(can).cloned().collect();
    let log = Arc::new(Log::open(Path::new(&orders.log), Path::new(&orders.resource))?);
    let mut tasks = JoinSet::new();
    for task in 0..orders.tasks {
        let worker = Worker::new(
            task,
            orders.seed,
            locks.clone(),
            Arc::clone(&log),
            Arc::clone(&targets),
            phases.clone(),
        );
        tasks.spawn(worker.with_lease(orders.lease).with_cancels(orders.cancels).work());
    }
    Ok(tasks)
}

fn say(what: &str) {
    let mut out = std::io::stdout().lock();
    // The parent that does not listen any more has ended.
    let _ = writeln!(out, "{what}").and_then(|()| out.flush());
}

/// A child that is stopped would outlive a parent that is killed.
fn die_with_parent() {
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{Signal, set_parent_process_death_signal};
        // Without it the child sees the end of its pipe.
        let _ = set_parent_process_death_signal(Some(Signal::KILL));
    }
}
