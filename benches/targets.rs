//! The figures that dlock holds itself to, each a ratio to its baseline in the same run.
//!
//! `cargo bench --features sqlite --bench targets`. It prints a table and fails when a target is
//! missed by the median of its rounds. Rounds of baseline and subject take turns, so that a noisy
//! machine disturbs both.

#![expect(clippy::disallowed_methods, reason = "it measures by the clock")]

use std::{
    collections::HashMap,
    process::ExitCode,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use dlock::{Error, LockOptions, Locks, backend::Memory};
use tokio::runtime::{Builder, Runtime};

const ROUNDS: usize = 9;

fn main() -> Result<ExitCode, Error> {
    // `cargo test --benches` only checks that it runs.
    if std::env::args().any(|arg| arg == "--test") {
        return Ok(ExitCode::SUCCESS);
    }
    let mut report = Report { missed: false };
    println!("{:<66} {:>10} {:>10}", "median of ratios", "measured", "target");
    uncontended(&mut report)?;
    #[cfg(feature = "sqlite")]
    hot(&mut report)?;
    held(&mut report)?;
    Ok(if report.missed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

struct Report {
    missed: bool,
}

impl Report {
    fn at_most(&mut self, what: &str, measured: f64, unit: &str, target: f64) {
        self.line(what, measured, unit, "<=", target, measured <= target);
    }

    #[cfg(feature = "sqlite")]
    fn at_least(&mut self, what: &str, measured: f64, unit: &str, target: f64) {
        self.line(what, measured, unit, ">=", target, measured >= target);
    }

    fn line(&mut self, what: &str, measured: f64, unit: &str, sign: &str, target: f64, ok: bool) {
        self.missed |= !ok;
        let verdict = if ok { "" } else { "  MISSED" };
        println!("{what:<66} {measured:>8.2}{unit:>2} {sign:>4} {target:.1}{unit}{verdict}");
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn single() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}

#[cfg(feature = "sqlite")]
fn workers() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
}

/// Acquire and release of an uncontended lock in memory.
fn uncontended(report: &mut Report) -> Result<(), Error> {
    const CYCLES: u32 = 200_000;
    let runtime = single();
    let lock = runtime.block_on(async { Locks::new(Memory::new()) })?.mutex("inventory/42")?;
    let named: Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>> =
        Mutex::new(HashMap::from([("inventory/42".to_owned(), Arc::default())]));
    let ratios = (0..ROUNDS).map(|_| {
        runtime.block_on(async {
            let start = Instant::now();
            for _ in 0..CYCLES {
                let found = named.lock().expect("no panic").get("inventory/42").cloned();
                drop(std::hint::black_box(found.expect("it is there").lock_owned().await));
            }
            let baseline = start.elapsed();
            let start = Instant::now();
            for _ in 0..CYCLES {
                let _ = std::hint::black_box(lock.lock().await?.release().await?);
            }
            Ok(start.elapsed().as_secs_f64() / baseline.as_secs_f64())
        })
    });
    let ratio = median(ratios.collect::<Result<_, Error>>()?);
    report.at_most("uncontended lock in memory : tokio mutex and one map look-up", ratio, "x", 3.0);
    Ok(())
}

/// 64 tasks that contend for one lock in SQLite.
#[cfg(feature = "sqlite")]
fn hot(report: &mut Report) -> Result<(), Error> {
    const TASKS: usize = 64;
    const LASTS: Duration = Duration::from_millis(400);
    let directory = tempfile::tempdir().expect("a temporary directory");
    let url = format!("sqlite:{}?dlock.create_schema=true", directory.path().join("l").display());
    let runtime = workers();
    let locks = runtime.block_on(dlock::connect(&url))?;
    let (passed, bare) = (locks.mutex("hot")?, locks.without_handoff().mutex("hot")?);
    let plain = Arc::new(tokio::sync::Mutex::new(()));

    let (mut to_bare, mut to_plain) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let baseline = contend(TASKS, LASTS, plain.clone(), |plain| async move {
            drop(plain.lock().await);
        });
        let baseline = runtime.block_on(baseline);
        let taken = |lock: dlock::Mutex| async move {
            drop(lock.lock().await.expect("a healthy store"));
        };
        let handed = runtime.block_on(contend(TASKS, LASTS, passed.clone(), taken));
        let stored = runtime.block_on(contend(TASKS, LASTS, bare.clone(), taken));
        to_bare.push(handed / stored);
        to_plain.push(handed / baseline);
    }
    let (to_bare, to_plain) = (median(to_bare), median(to_plain));
    report.at_least("64 tasks, one SQLite lock : the same without hand-off", to_bare, "x", 50.0);
    report.at_least("64 tasks, one SQLite lock : the same on a tokio mutex", to_plain, "x", 0.3);
    Ok(())
}

/// Returns how many times a second this number of tasks completes `cycle` with `lock`.
#[cfg(feature = "sqlite")]
async fn contend<L, F, Fut>(tasks: usize, lasts: Duration, lock: L, cycle: F) -> f64
where
    L: Clone + Send + 'static,
    F: Fn(L) -> Fut + Copy + Send + 'static,
    Fut: Future<Output = ()> + Send,
{
    let start = Instant::now();
    let mut running = tokio::task::JoinSet::new();
    for _ in 0..tasks {
        let lock = lock.clone();
        running.spawn(async move {
            let mut cycles = 0.0;
            while start.elapsed() < lasts {
                cycle(lock.clone()).await;
                cycles += 1.0;
            }
            cycles
        });
    }
    let cycles: f64 = running.join_all().await.into_iter().sum();
    cycles / start.elapsed().as_secs_f64()
}

/// The cost of 10,000 held locks, in the process and on the way to the store.
fn held(report: &mut Report) -> Result<(), Error> {
    const HELD: u32 = 10_000;
    let runtime = single();
    runtime.block_on(async {
        let options = LockOptions::new().with_lease(Duration::from_secs(3));
        let locks = Locks::new(Memory::new())?.with_options(options)?;
        let names: Vec<String> = (0..HELD).map(|i| format!("held/{i}")).collect();
        let before = resident();
        let mut guards = Vec::with_capacity(names.len());
        for name in &names {
            guards.push(locks.fair(name)?.lock().await?);
        }
        let each = (resident() - before) / f64::from(HELD);
        report.at_most("memory for a held lock, of 10,000", each, "B", 1024.0);

        let cpu = processor_time();
        let start = Instant::now();
        tokio::time::sleep(Duration::from_secs(4)).await;
        let share = 100.0 * (processor_time() - cpu) / start.elapsed().as_secs_f64();
        report.at_most("share of a core for renewing them, each second of 3", share, "%", 5.0);
        for guard in &guards {
            guard.check()?;
        }
        Ok(())
    })
}

/// Returns the bytes of memory that the process uses.
fn resident() -> f64 {
    let status = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: f64 = status.split(' ').nth(1).and_then(|n| n.parse().ok()).unwrap_or(0.0);
    pages * 4096.0
}

/// Returns the seconds of processor time that the process has used.
fn processor_time() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    let ticks: f64 =
        after_name.split(' ').skip(12).take(2).filter_map(|n| n.parse::<f64>().ok()).sum();
    ticks / 100.0
}
