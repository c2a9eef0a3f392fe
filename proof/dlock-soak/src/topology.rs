//! Stores that faults are injected into, with the network between them and the holders.

pub(super) mod ensemble;
mod network;
pub(super) mod redis;
pub(super) mod single;

use std::{
    fmt,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use async_trait::async_trait;
use dlock_core::{DynBackend, Error};
use dlock_testkit::{Stop, Verdict};
use futures_util::future::BoxFuture;
use tempfile::TempDir;

use super::{
    fault::{Effect, Fault},
    plan::{Kind, Load},
};

/// Connects to a store.
pub(crate) type Connect =
    dyn Fn(String) -> BoxFuture<'static, Result<DynBackend, Error>> + Send + Sync;

/// A store that faults are injected into, with the network between it and the holders.
#[async_trait]
pub(crate) trait Topology: fmt::Debug + Send + Sync {
    /// Returns the URL for the holders, which leads through the proxy.
    fn url(&self) -> String;

    /// Returns the URL for the checks after the run, which leads to the store directly.
    fn direct_url(&self) -> String {
        self.url()
    }

    /// Injects a fault into the store, proves that it takes effect, and repairs the store.
    ///
    /// # Errors
    /// If the store can't be repaired.
    async fn inject(&self, fault: Fault) -> Result<Effect, Stop> {
        Ok(Effect::Missed(format!("{fault}: not of this store")))
    }

    /// Waits until the store serves as before its faults.
    ///
    /// # Errors
    /// If it does not in time.
    async fn until_well(&self) -> Verdict {
        Ok(())
    }

    /// Whether the store deletes old records only while a client is connected.
    fn is_swept_by_clients(&self) -> bool {
        true
    }

    /// Returns what the store contains of locks without holders and waiters.
    ///
    /// # Errors
    /// If the store does not answer.
    async fn left(&self) -> Result<Vec<String>, Stop> {
        Ok(Vec::new())
    }

    /// Returns the number of the store's connections, without those of this observer.
    ///
    /// # Errors
    /// If the store does not answer.
    async fn connections(&self) -> Result<usize, Stop> {
        Ok(0)
    }

    /// Returns the work of the holders.
    fn load(&self) -> Load {
        many_locks()
    }
}

/// A store whose holders only have faults.
#[derive(Debug)]
pub(crate) struct Plain {
    url: String,
    load: Load,
    /// The directory of its file, if it has one.
    _directory: Option<TempDir>,
}

impl Plain {
    /// The memory of one process with several tasks.
    pub(crate) fn memory() -> Self {
        // The memory of another process would be another store.
        let load = many_locks().with_processes(1).with_tasks(16);
        Self { url: "memory:".to_owned(), load, _directory: None }
    }

    /// A SQLite file.
    pub(crate) fn sqlite() -> Result<Self, Stop> {
        let directory = tempfile::Builder::new().prefix("dlock-soak-").tempdir()?;
        let file = directory.path().join("locks.db");
        let url = format!("sqlite://{}?dlock.create_schema=true", file.display());
        Ok(Self { url, load: many_locks(), _directory: Some(directory) })
    }

    /// An existing store. Other clients may use it too, and it may be remote.
    #[cfg(feature = "command")]
    pub(crate) fn given(url: &str) -> Self {
        let prefix = format!("dlock-soak/{:08x}", rand::random::<u32>());
        let load = Load::new(&prefix).with_leases(&[1000, 2000].map(Duration::from_millis));
        Self { url: url.to_owned(), load, _directory: None }
    }
}

#[async_trait]
impl Topology for Plain {
    fn url(&self) -> String {
        self.url.clone()
    }

    fn load(&self) -> Load {
        self.load.clone()
    }
}

/// Returns a load on a mix of locks, of which some have little contention.
fn many_locks() -> Load {
    Load::new("soak")
        .with_lock(Kind::Mutex, &["soak/e"])
        .with_lock(Kind::Fair, &["soak/f"])
        .with_lock(Kind::Mutex, &["soak/g"])
        .with_lock(Kind::ReadWrite, &["soak/h"])
}

/// Returns a load for a store with sessions. The core shortens leases to the time that sessions
/// support.
fn with_sessions() -> Load {
    many_locks().with_leases(&[300, 600, 2500].map(Duration::from_millis))
}

/// Returns a random time between these bounds, in milliseconds.
fn some(from: u64, to: u64) -> Duration {
    Duration::from_millis(rand::random_range(from..=to))
}

/// The lengths of a store's outages. The first one and every third one after it are long, so that
/// leases and sessions expire. The others are short, so that many faults happen.
#[derive(Debug)]
struct Outages {
    longest: Duration,
    count: AtomicUsize,
}

impl Outages {
    fn up_to(longest: Duration) -> Self {
        Self { longest, count: AtomicUsize::new(0) }
    }

    /// Returns the length of the next one.
    fn next(&self) -> Duration {
        if self.count.fetch_add(1, Ordering::Relaxed).is_multiple_of(3) {
            self.longest.mul_f64(rand::random_range(0.6..=1.0))
        } else {
            some(50, 900)
        }
    }
}

/// Whether a server that had the first process id has been started again as another process.
fn is_restarted(before: Option<u32>, after: Option<u32>) -> bool {
    before.is_some() && after.is_some() && before != after
}

/// Returns whether the process of a server is paused. On systems that do not show it, the answer is
/// yes.
fn is_stopped(pid: Option<u32>) -> bool {
    !cfg!(target_os = "linux") || pid.is_some_and(dlock_testlab::is_stopped)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_outage_and_every_third_one_are_long() {
        let longest = Duration::from_secs(4);
        let outages = Outages::up_to(longest);
        for turn in 0..9 {
            let time = outages.next();
            assert_eq!(time >= longest.mul_f64(0.6), turn % 3 == 0, "{turn}: {time:?}");
            assert!(time <= longest, "{turn}: {time:?}");
        }
    }
}
