//! Loads over SQLite: each order has its effect on the processes, and violations by a process are
//! found.

use std::{fs::File, time::Duration};

use dlock_core::{DynBackend, Error, Registry};
use dlock_soak::{Load, Report, Scenario, run};
use dlock_sql::SQLITE;
use dlock_testkit::{Stop, Verdict};
use tempfile::TempDir;
use tokio::time::sleep;

/// The violation that a process commits.
const MISBEHAVE: &str = "DLOCK_TEST_MISBEHAVE";

async fn connect(address: String) -> Result<DynBackend, Error> {
    if let Ok(how) = std::env::var(MISBEHAVE) {
        std::thread::spawn(move || misbehave(&how));
    }
    Registry::new().with(SQLITE).connect(address.parse()?, &[]).await
}

/// After it is warm.
fn misbehave(how: &str) {
    std::thread::sleep(Duration::from_millis(1600));
    match how {
        "panic" => panic!("on purpose"),
        "exit" => std::process::exit(3),
        _ => std::mem::forget((0..40).map(|_| File::open("/dev/null")).collect::<Vec<_>>()),
    }
}

fn store() -> Result<(TempDir, String), Stop> {
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("locks.db");
    let address = format!("sqlite://{}?dlock.create_schema=true", file.display());
    Ok((directory, address))
}

fn is(condition: bool, what: &str) -> Verdict {
    if condition { Ok(()) } else { Err(Stop::failed(what)) }
}

async fn orders_are_obeyed() -> Verdict {
    let (directory, address) = store()?;
    let load = Load::new("orders").with_mutexes("many", 8).with_faults_noted();
    let mut load = load.start(&address).await?;
    for _ in 0..2 {
        load.stall_one(Duration::from_millis(700)).await?;
        is(load.abort_one().await? == 4, "each process has four tasks")?;
        load.cancel_storm(100, Duration::from_millis(500)).await?;
        // Two stops at once: neither resumes the process that the other has stopped.
        let [long, short] = [600, 200].map(|time| load.stop_one(Duration::from_millis(time)));
        tokio::try_join!(long, short)?;
        load.kill_one().await?;
    }
    let report = load.finish().await?;
    println!("{report}; lost() late by {:?} at most", report.lateness().most());
    report.check()?;
    is(report.orphans(&connect(address).await?).await?.is_empty(), "something is left")?;
    is(report.grants_per_second().iter().sum::<u64>() == report.grants() as u64, "grants")?;
    is(!report.hand_offs().is_empty(), "nobody waited for anybody")?;

    let file = directory.path().join("history");
    report.write_history(&file)?;
    let text = std::fs::read_to_string(&file)?;
    for fault in ["holder-stall", "holder-abort", "cancel-storm", "holder-stop", "holder-kill"] {
        is(text.contains(&format!("\"fault\":\"{fault}\"")), fault)?;
    }
    is(text.contains("\"did\":\"late\""), "nobody noticed that it stood still")?;
    is(text.contains("\"when\":\"end\""), "nobody said what it has open")?;
    let again = Report::read_history(&file)?;
    again.check()?;
    is(again.to_string() == report.to_string(), "another verdict")
}

async fn misbehaviour_is_found(how: &'static str, what: &'static str) -> Verdict {
    let (_directory, address) = store()?;
    let load = Load::new("bad").with_processes(2).with_env(MISBEHAVE, how);
    let load = load.start(&address).await?;
    sleep(Duration::from_millis(1800)).await;
    let report = load.finish().await?;
    let found = report.violations();
    is(
        found.iter().any(|breach| breach.text.contains(what)),
        &format!("not found: {what}: {found:?}"),
    )?;
    is(report.check().is_err(), "it is to be wrong")
}

/// The violation is also found if a kill replaces the process by another one afterwards.
async fn an_exit_before_a_kill_is_found() -> Verdict {
    let (_directory, address) = store()?;
    let load = Load::new("bad").with_processes(1).with_env(MISBEHAVE, "exit");
    let mut load = load.start(&address).await?;
    sleep(Duration::from_millis(1800)).await;
    is(load.kill_one().await.is_err(), "a process is killed that has exited")?;
    let found = load.finish().await?.violations();
    let is_found = found.iter().any(|breach| breach.text.contains("was to be killed"));
    is(is_found, &format!("not found: {found:?}"))
}

fn main() {
    let misbehaves =
        |name, how, what| Scenario::new(name, move || misbehaviour_is_found(how, what));
    let scenarios = vec![
        Scenario::new("orders_are_obeyed", orders_are_obeyed),
        misbehaves("a_panic_is_found", "panic", "panicked at"),
        misbehaves("an_end_by_itself_is_found", "exit", "ended by itself"),
        Scenario::new("an_exit_before_a_kill_is_found", an_exit_before_a_kill_is_found),
        misbehaves("a_leak_is_found", "leak", "files after"),
    ];
    run("sqlite", connect, scenarios)
}
