//! A partner allows three calls at a time from all our servers together. The fleet shares a
//! semaphore with three permits. A batch acquires two permits at once, and calls that acquire one
//! permit can't starve it.
//!
//! `cargo run --example rate_limit`, on another store with `-- --url URL`

mod given;

use std::{
    error::Error,
    sync::atomic::{AtomicU32, Ordering::SeqCst},
    time::Duration,
};

use dlock::Locks;
use futures_util::future::{try_join, try_join_all};
use tokio::time::sleep;

const ALLOWED: u32 = 3;

/// The number of running calls, and its maximum so far.
static CALLS: AtomicU32 = AtomicU32::new(0);
static MOST: AtomicU32 = AtomicU32::new(0);

type Failure = Box<dyn Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let locks = dlock::connect(&given::url("memory:")?).await?;
    let singles = try_join_all((0..12).map(|server| call(&locks, server, 1)));
    try_join(singles, call(&locks, 12, 2)).await?;
    let most = MOST.load(SeqCst);
    println!("14 calls by 13 servers, never more than {most} at a time");
    if most != ALLOWED {
        return Err(format!("{ALLOWED} are allowed, and {most} is another number").into());
    }
    Ok(locks.shutdown(Duration::from_secs(5)).await?)
}

/// Makes this number of calls at once, when the fleet has enough permits left.
async fn call(locks: &Locks, server: u32, calls: u32) -> Result<(), Failure> {
    let permits = locks.semaphore("partner-api", ALLOWED)?;
    let guard = match permits.try_acquire_many(calls).await? {
        Some(guard) => guard,
        None => {
            println!("server {server} waits for {calls}");
            permits.acquire_many(calls).await?
        }
    };
    println!("server {server} makes {calls} call(s)");
    MOST.fetch_max(CALLS.fetch_add(calls, SeqCst) + calls, SeqCst);
    sleep(Duration::from_millis(40)).await;
    CALLS.fetch_sub(calls, SeqCst);
    guard.release().await?;
    Ok(())
}
