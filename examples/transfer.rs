//! Transfers between accounts of two banks, whose locks are in two stores. Each transfer acquires
//! both locks or none, so transfers in opposite directions neither lose money nor deadlock.
//!
//! `cargo run --example transfer --features sqlite`, the second bank elsewhere with `-- --url URL`

mod given;

use std::{
    error::Error,
    sync::atomic::{AtomicI64, Ordering::SeqCst},
    time::Duration,
};

use dlock::{Locks, MultiMutex};
use futures_util::future::try_join_all;
use tempfile::TempDir;
use tokio::time::{sleep, timeout};

type Failure = Box<dyn Error + Send + Sync>;

/// One account. Reading and writing it are two steps, as over a network.
struct Account {
    locks: Locks,
    name: &'static str,
    balance: AtomicI64,
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let dir = TempDir::with_prefix("dlock-transfer-")?;
    let file = dir.path().join("locks.db");
    let url = given::url(&format!("sqlite:{}?dlock.create_schema=true", file.display()))?;
    let (here, there) = (dlock::connect("memory:").await?, dlock::connect(&url).await?);
    let anna = Account { locks: here.clone(), name: "anna", balance: AtomicI64::new(1000) };
    let ben = Account { locks: there.clone(), name: "ben", balance: AtomicI64::new(1000) };

    // Every second transfer goes in the opposite direction: locks acquired one after another would
    // deadlock.
    let transfers = try_join_all((1..=40).map(|number| {
        let (from, to) = if number % 2 == 0 { (&anna, &ben) } else { (&ben, &anna) };
        transfer(from, to, number)
    }));
    timeout(Duration::from_secs(60), transfers).await.map_err(|_| "a deadlock")??;

    let (a, b) = (anna.balance.load(SeqCst), ben.balance.load(SeqCst));
    println!("40 transfers later anna has {a} and ben has {b}: together {}", a + b);
    // Ben gets 20 more than anna: 2 + 4 + ... against 1 + 3 + ...
    if (a, b) != (980, 1020) {
        return Err("money was lost or made: anna should have 980 and ben 1020".into());
    }
    drop((anna, ben));
    here.shutdown(Duration::from_secs(5)).await?;
    Ok(there.shutdown(Duration::from_secs(5)).await?)
}

async fn transfer(from: &Account, to: &Account, amount: i64) -> Result<(), Failure> {
    let locks = [from.locks.mutex(from.name)?, to.locks.mutex(to.name)?];
    let both = MultiMutex::across(locks)?.lock().await?;
    let (old_from, old_to) = (from.balance.load(SeqCst), to.balance.load(SeqCst));
    sleep(Duration::from_millis(1)).await;
    from.balance.store(old_from - amount, SeqCst);
    to.balance.store(old_to + amount, SeqCst);
    if amount == 1 {
        println!("each bank gets the token of its own lock: {:?}", both.tokens());
    }
    both.release().await?;
    Ok(())
}
