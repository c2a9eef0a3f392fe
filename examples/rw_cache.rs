//! A cache under a read-write lock: many tasks read at once, and one task fills it. After that it
//! downgrades its lock to a read lock, without a gap in which another writer could get the lock.
//!
//! `cargo run --example rw_cache`, on another store with `-- --url URL`

mod given;

use std::{
    error::Error,
    sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst},
    time::Duration,
};

use dlock::RwLock;
use futures_util::future::try_join_all;
use tokio::time::sleep;

type Failure = Box<dyn Error + Send + Sync>;

/// A value that all tasks share, and that takes long to compute.
struct Cache {
    lock: RwLock,
    value: AtomicU64,
    fills: AtomicU32,
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let locks = dlock::connect(&given::url("memory:")?).await?;
    let cache =
        Cache { lock: locks.rw("price-list")?, value: AtomicU64::new(0), fills: AtomicU32::new(0) };
    let values = try_join_all((0..20).map(|_| cache.get())).await?;
    let fills = cache.fills.load(SeqCst);
    println!("20 readers got {:?}, and it was computed {fills} time(s)", values[0]);
    if fills != 1 || values.iter().any(|value| *value != 42) {
        return Err("it was computed more than once, or somebody read nothing".into());
    }
    drop(cache);
    Ok(locks.shutdown(Duration::from_secs(5)).await?)
}

impl Cache {
    async fn get(&self) -> Result<u64, Failure> {
        let read = self.lock.read().lock().await?;
        let value = self.value.load(SeqCst);
        // A read lock can't be upgraded: two readers that try would wait for each other forever.
        read.release().await?;
        if value > 0 { Ok(value) } else { self.fill().await }
    }

    async fn fill(&self) -> Result<u64, Failure> {
        let mut guard = self.lock.write().lock().await?;
        // Another task may have filled the cache while this one waited for the write lock.
        if self.value.load(SeqCst) == 0 {
            sleep(Duration::from_millis(50)).await;
            self.value.store(42, SeqCst);
            self.fills.fetch_add(1, SeqCst);
        }
        guard.downgrade().await?;
        if self.lock.write().try_lock().await?.is_some() {
            return Err("a writer came in over a reader".into());
        }
        let value = self.value.load(SeqCst);
        guard.release().await?;
        Ok(value)
    }
}
