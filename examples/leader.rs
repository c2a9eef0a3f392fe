//! Leader election: the elected node leads for a term, and the number of the term is a fencing
//! token. Three nodes campaign; the second one is deposed by force.
//!
//! `cargo run --example leader`, on another store with `-- --url URL`

mod given;

use std::{
    error::Error,
    sync::atomic::{AtomicU64, Ordering::SeqCst},
    time::Duration,
};

use dlock::{FencingToken, LockOptions, Locks};
use futures_util::future::try_join_all;
use tokio::time::sleep;

/// The last term.
static TERM: AtomicU64 = AtomicU64::new(0);

type Failure = Box<dyn Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    // A deposed leader detects that at its next renewal, after a third of the lease.
    let options = LockOptions::new().with_lease(Duration::from_millis(600));
    let locks = dlock::connect(&given::url("memory:")?).await?.with_options(options)?;
    let ends = try_join_all(["anna", "ben", "cleo"].map(|node| stand(&locks, node))).await?;
    if !ends.contains(&"deposed") || !ends.contains(&"stepped down") {
        return Err(format!("the terms ended otherwise than told here: {ends:?}").into());
    }
    Ok(locks.shutdown(Duration::from_secs(5)).await?)
}

/// Waits to be elected, leads for a term, and returns how the term ended. `Election::lead` does
/// this in a loop.
async fn stand(locks: &Locks, node: &str) -> Result<&'static str, Failure> {
    let leadership = locks.election("leader")?.campaign().await?;
    let term = leadership.term();
    // Until a deposed leader detects the loss, two nodes act as leader: the larger term counts.
    let before = TERM.swap(term.get(), SeqCst);
    if before >= term.get() {
        return Err(format!("term {before} was before {term}").into());
    }
    let end = match leadership.run(lead(locks, node, term)).await {
        Ok(led) => led.map(|()| "stepped down")?,
        Err(_) => "deposed",
    };
    println!("{node} {end}");
    leadership.resign().await?;
    Ok(end)
}

/// Does the work of the leader. If the term ends early, this future is dropped.
async fn lead(locks: &Locks, node: &str, term: FencingToken) -> Result<(), Failure> {
    println!("{node} leads in term {term}");
    if node == "ben" {
        locks.force_release("leader").await?;
        sleep(Duration::from_secs(60)).await;
    }
    sleep(Duration::from_millis(100)).await;
    Ok(())
}
