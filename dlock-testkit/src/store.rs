//! What a backend author fills in: how to open a fresh store, and how to look into it.

use std::time::Duration;

use async_trait::async_trait;
use dlock_core::{DynBackend, Error, ErrorKind, LockName};

use crate::Stop;

/// A kind of store that the suite can open fresh copies of.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// What `DLOCK_TEST_REQUIRE` calls it, such as `redis`.
    fn name(&self) -> &str;

    /// In which setting it is run, such as `cluster`, where one test target runs several: it stands
    /// before the names of the cases.
    fn setting(&self) -> &str {
        ""
    }

    /// Opens a store that nobody else uses: an empty file, a private server, an empty database.
    /// It is called once for most cases together and again for those that need two stores.
    ///
    /// [`Stop::missing`] says that there is no server to test against; any other error fails.
    async fn open(&self) -> Result<Box<dyn Opened>, Stop>;

    /// Connects, in a child process, to the store that [`Opened::address`] names.
    async fn connect_to(&self, address: &str) -> Result<DynBackend, Error> {
        let _ = address;
        Err(Error::new(ErrorKind::Unsupported, "this store gave no address"))
    }
}

/// A store that was opened for the suite. Dropping it cleans up.
#[async_trait]
pub trait Opened: Send + Sync {
    /// A new client, as independent of the others as one in another process.
    async fn connect(&self) -> Result<DynBackend, Error>;

    /// Where a child process finds this store; `None` for one that does not leave the process.
    fn address(&self) -> Option<String> {
        None
    }

    /// What the store still holds of `name`, read without the backend: one line for each claim,
    /// key, row or node that should have gone. What may stay for a while, such as the row of a
    /// free lock within its retention, does not belong here.
    async fn leftovers(&self, name: &LockName) -> Result<Vec<String>, Stop>;

    /// Removes everything that the store holds of `name`, as its retention would in the end.
    /// `false`: this store can't.
    async fn forget(&self, name: &LockName) -> Result<bool, Stop> {
        let _ = name;
        Ok(false)
    }

    /// The times that the suite works with.
    fn bounds(&self) -> Bounds {
        Bounds::default()
    }
}

/// The times that the suite works with.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Bounds {
    /// The lease of claims that are left to end: the shortest that the store tells apart well.
    pub lease: Duration,
    /// How long anything may take that must happen: a wake-up, the end of a dead holder's claim
    /// after its lease. A generous backstop on a busy machine, never a measure of speed.
    pub wake_up: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { lease: Duration::from_millis(300), wake_up: Duration::from_secs(30) }
    }
}
