//! The child's side: this binary, started again. Its tasks acquire locks until the parent ends
//! them.
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

use std::{io::Write, time::Duration};

use dlock_core::{Clock, DynBackend, Error, Locks};
use dlock_testkit::{Stop, Verdict};
use tokio::{sync::watch, time::sleep};

use super::{
    crew::{self, Crew},
    line::Phase,
    orders::Orders,
};

/// The variable that makes a process a child.
pub(super) const CHILD: &str = "DLOCK_TEST_LOAD";

/// The number of threads of its runtime.
const THREADS: usize = 2;

/// The time for which it tries to connect, since the store may be unreachable or busy when it
/// starts.
const CONNECTS: Duration = Duration::from_secs(30);

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
    let locks = runtime.block_on(connected(connect, &orders.store))?;
    let (phase, phases) = watch::channel(Phase::Storm);
    let mut crew = runtime.block_on(async { Crew::begin(locks, orders, phases) })?;
    say("ready");
    for line in lines {
        let line = line?;
        let words: Vec<&str> = line.split(' ').collect();
        match *words {
            ["stall", ms] => {
                let time = Duration::from_millis(ms.parse()?);
                let stalled = crew::stall(runtime.handle(), THREADS, time)?;
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
                    runtime.block_on(crew.end())?;
                    say("done");
                    return Ok(());
                }
            }
        }
    }
    Err(Stop::failed("the parent has gone"))
}

async fn connected<C, F>(connect: C, store: &str) -> Result<Locks, Stop>
where
    C: Fn(String) -> F,
    F: Future<Output = Result<DynBackend, Error>>,
{
    let end = Clock::Boot.now().saturating_add(CONNECTS);
    loop {
        match connect(store.to_owned()).await {
            Ok(backend) => return Ok(Locks::new(backend)?),
            Err(error) if !error.is_transient() || Clock::Boot.now() >= end => {
                return Err(error.into());
            }
            Err(_) => sleep(Duration::from_millis(100)).await,
        }
    }
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
