//! A thousand tasks in four processes increment a counter in a file, which does not protect itself:
//! each task reads the number and writes one more. Without a lock updates are lost; with it none
//! is.
//!
//! `cargo run --example counting --features sqlite`, and on other stores, one after another:
//! `... --features redis,postgres,sqlite -- --url redis://localhost --url postgres://...`

use std::{env, error::Error, fs, io::Write as _, path::Path, process::ExitStatus, time::Duration};

use dlock::{
    LockExt as _,
    guarantees::{Guarantees, Scope},
};
use futures_util::future::try_join_all;
use lexopt::{Arg, Parser, ValueExt as _};
use tempfile::TempDir;
use tokio::{process::Command, time::Instant};

const PROCESSES: u32 = 4;
const TASKS: u32 = 250;

type Failure = Box<dyn Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    if let Ok(counter) = env::var("COUNTING_FILE") {
        return work(Path::new(&counter), env::var("COUNTING_URL").ok()).await;
    }
    let dir = TempDir::with_prefix("dlock-counting-")?;
    let (counter, urls) = (dir.path().join("counter.txt"), urls(dir.path())?);
    let all = PROCESSES * TASKS;
    let counted = count(&counter, None).await?;
    println!("without a lock: {all} tasks count to {counted}, {} updates are lost", all - counted);
    if counted == all {
        return Err("no update was lost, so this shows nothing".into());
    }
    for url in urls {
        let locks = dlock::connect(&url).await?;
        locks.require(&Guarantees::WEAKEST.with_scope(Scope::Machine))?;
        let began = Instant::now();
        let counted = count(&counter, Some(&url)).await?;
        let (store, took) = (locks.backend().store(), began.elapsed());
        println!("with a lock on {store}: {all} tasks count to {counted}, in {took:.2?}");
        if counted != all {
            return Err(format!("{} updates were lost under the lock", all - counted).into());
        }
    }
    Ok(())
}

/// Returns the value of the counter after all processes have ended.
async fn count(counter: &Path, url: Option<&str>) -> Result<u32, Failure> {
    fs::write(counter, "0000")?;
    // The URL is passed in the environment: every user can read the arguments of a process.
    let mut worker = Command::new(env::current_exe()?);
    worker.env("COUNTING_FILE", counter).envs(url.map(|url| ("COUNTING_URL", url)));
    let workers = (0..PROCESSES).map(|_| worker.kill_on_drop(true).status()).collect::<Vec<_>>();
    if !try_join_all(workers).await?.iter().all(ExitStatus::success) {
        return Err("a worker failed; it has said why".into());
    }
    Ok(fs::read_to_string(counter)?.parse()?)
}

/// Runs one process: all its tasks at once, under the lock if there is one.
async fn work(counter: &Path, url: Option<String>) -> Result<(), Failure> {
    let Some(url) = url else {
        try_join_all((0..TASKS).map(|_| add(counter))).await?;
        return Ok(());
    };
    let locks = dlock::connect(&url).await?;
    let lock = locks.mutex("counter")?;
    try_join_all((0..TASKS).map(|_| async { lock.with(|_| add(counter)).await? })).await?;
    Ok(locks.shutdown(Duration::from_secs(5)).await?)
}

/// Reads the number and writes one more.
async fn add(counter: &Path) -> Result<(), Failure> {
    let seen: u32 = fs::read_to_string(counter)?.parse()?;
    // Other tasks run meanwhile, as they do while a database answers.
    tokio::task::yield_now().await;
    // Written in place and with a fixed width, so that no reader sees half a number.
    let mut file = fs::OpenOptions::new().write(true).open(counter)?;
    Ok(write!(file, "{:04}", seen + 1)?)
}

/// Returns the URLs that the user gave, or else that of an SQLite file.
fn urls(dir: &Path) -> Result<Vec<String>, Failure> {
    let mut urls = Vec::from_iter(env::var("DLOCK_URL").ok());
    let mut parser = Parser::from_env();
    while let Some(arg) = parser.next()? {
        match arg {
            Arg::Long("url") => urls.push(parser.value()?.string()?),
            other => return Err(other.unexpected().into()),
        }
    }
    if urls.is_empty() {
        let file = dir.join("locks.db");
        urls.push(format!("sqlite:{}?dlock.create_schema=true", file.display()));
    }
    Ok(urls)
}
