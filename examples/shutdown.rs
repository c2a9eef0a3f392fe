//! An orderly shutdown on Ctrl-C or SIGTERM: no new work begins, running work completes, and every
//! lock is released instead of staying held until its lease expires. The example ends after a
//! second without a signal too.
//!
//! `cargo run --example shutdown --features sqlite`, on another store with `-- --url URL`

mod given;

use std::{
    error::Error,
    io,
    sync::atomic::{AtomicU32, Ordering::SeqCst},
    time::Duration,
};

use dlock::{ErrorKind, Locks, error::ConfigIssue};
use tempfile::TempDir;
use tokio::{task::JoinSet, time::sleep};

static DONE: AtomicU32 = AtomicU32::new(0);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let dir = TempDir::with_prefix("dlock-shutdown-")?;
    let file = dir.path().join("locks.db");
    let url = given::url(&format!("sqlite:{}?dlock.create_schema=true", file.display()))?;
    let locks = dlock::connect(&url).await?;
    let mut workers = JoinSet::new();
    for job in 0..4 {
        workers.spawn(work(locks.clone(), format!("job/{job}")));
    }
    println!("working; {} ends it", interrupted().await?);

    // Refuses new locks, and waits until the existing guards are dropped and released.
    locks.shutdown(Duration::from_secs(10)).await?;
    while let Some(worker) = workers.join_next().await {
        worker??;
    }
    println!("{} jobs were done, the last ones to their ends", DONE.load(SeqCst));

    // The next program finds every lock free.
    let next = dlock::connect(&url).await?;
    for job in 0..4 {
        if !next.inspect(format!("job/{job}")).await?.is_free() {
            return Err(format!("job/{job} is still locked").into());
        }
    }
    println!("no lock has stayed behind");
    Ok(next.shutdown(Duration::from_secs(5)).await?)
}

/// Does one job after another until `locks` refuses new locks.
async fn work(locks: Locks, job: String) -> Result<(), dlock::Error> {
    loop {
        let guard = match locks.mutex(job.as_str())?.lock().await {
            Ok(guard) => guard,
            Err(error) if error.kind() == ErrorKind::Config(ConfigIssue::ShutDown) => return Ok(()),
            Err(error) => return Err(error),
        };
        sleep(Duration::from_millis(70)).await;
        guard.release().await?;
        DONE.fetch_add(1, SeqCst);
    }
}

/// Waits for a signal or the end of the time, and returns which it was.
async fn interrupted() -> io::Result<&'static str> {
    #[cfg(unix)]
    let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    #[cfg(unix)]
    let terminated = terminate.recv();
    #[cfg(not(unix))]
    let terminated = std::future::pending::<()>();
    tokio::select! {
        pressed = tokio::signal::ctrl_c() => pressed.map(|()| "Ctrl-C"),
        _ = terminated => Ok("SIGTERM"),
        () = sleep(Duration::from_secs(1)) => Ok("the end of the second"),
    }
}
