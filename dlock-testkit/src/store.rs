//! The traits that a backend author implements: how to open a fresh store, and how to look into it.

use std::time::Duration;

use async_trait::async_trait;
use dlock_core::{DynBackend, Error, ErrorKind, LockName};

use crate::Stop;

/// A kind of store of which the kit can open fresh copies.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// Returns the name of the store in `DLOCK_TEST_REQUIRE`, such as `redis`.
    fn name(&self) -> &str;

    /// Returns the setting in which the store runs, such as `cluster`, if one test target runs
    /// several. It is a prefix of the names of the cases.
    fn setting(&self) -> &str {
        ""
    }

    /// Opens a store that nobody else uses: an empty file, a private server, an empty database. The
    /// kit calls it once for most cases together, and again for each case that needs two stores.
    ///
    /// [`Stop::missing`] means that there is no server to test against; any other error is a
    /// failure.
    async fn open(&self) -> Result<Box<dyn Opened>, Stop>;

    /// Connects, in a child process, to the store at the address that [`Opened::address`] returned.
    async fn connect_to(&self, address: &str) -> Result<DynBackend, Error> {
        let _ = address;
        Err(Error::new(ErrorKind::Unsupported, "this store gave no address"))
    }
}

/// A store that was opened for the kit. It cleans up when it is dropped.
#[async_trait]
pub trait Opened: Send + Sync {
    /// Returns a new client, as independent of the others as one in another process.
    async fn connect(&self) -> Result<DynBackend, Error>;

    /// Returns the address at which a child process finds this store, or `None` if other processes
    /// cannot reach it.
    fn address(&self) -> Option<String> {
        None
    }

    /// Returns what the store still contains of `name`, read without the backend: one line for each
    /// claim, key, row or node that should have been deleted. Do not return entries that may remain
    /// for a while, such as the row of a free lock within its retention.
    async fn leftovers(&self, name: &LockName) -> Result<Vec<String>, Stop>;

    /// Deletes everything that the store contains of `name`, as its retention would do later.
    /// Returns `false` if this store has no way to do it, and `true` if the store contains nothing
    /// of a free name anyway.
    async fn forget(&self, name: &LockName) -> Result<bool, Stop> {
        let _ = name;
        Ok(false)
    }

    /// Returns the times that the kit works with.
    fn bounds(&self) -> Bounds {
        Bounds::default()
    }
}

/// The times that the kit works with.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Bounds {
    /// The lease of claims that cases let expire: the shortest that the store can tell apart
    /// reliably. If the client ends the claims of its session, this is several times the interval in
    /// which it looks for ended leases.
    pub lease: Duration,
    /// The bound on anything that must happen, such as a wake-up, or the end of a dead holder's
    /// claim after its lease. It is a generous limit for a busy machine, never a measure of speed.
    pub wake_up: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { lease: Duration::from_millis(300), wake_up: Duration::from_secs(30) }
    }
}
