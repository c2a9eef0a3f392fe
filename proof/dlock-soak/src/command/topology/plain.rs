//! Stores without a server that faults could be injected into.

use std::time::Duration;

use async_trait::async_trait;
use dlock_testkit::Stop;
use tempfile::TempDir;

use super::{Effect, Fault, Topology, many_locks};
use crate::Load;

/// The memory of one process with several tasks.
pub(super) struct Memory;

#[async_trait]
impl Topology for Memory {
    fn url(&self) -> String {
        "memory:".to_owned()
    }

    fn faults(&self) -> Vec<Fault> {
        Fault::HOLDERS.into()
    }

    async fn inject(&self, _: Fault) -> Result<Effect, Stop> {
        Ok(nothing())
    }

    fn load(&self) -> Load {
        // The memory of another process would be another store.
        many_locks(Load::new("soak")).with_processes(1).with_tasks(16)
    }
}

/// A SQLite file.
pub(super) struct Sqlite {
    directory: TempDir,
}

impl Sqlite {
    pub(super) fn new() -> Result<Self, Stop> {
        Ok(Self { directory: tempfile::Builder::new().prefix("dlock-soak-").tempdir()? })
    }
}

#[async_trait]
impl Topology for Sqlite {
    fn url(&self) -> String {
        format!("sqlite://{}/locks.db?dlock.create_schema=true", self.directory.path().display())
    }

    fn excuses(&self, fault: Fault) -> bool {
        // The store uses the clock of the machine.
        fault.may_let_two_in() || fault == Fault::HolderClock
    }

    fn faults(&self) -> Vec<Fault> {
        Fault::HOLDERS.into()
    }

    async fn inject(&self, _: Fault) -> Result<Effect, Stop> {
        Ok(nothing())
    }
}

/// An existing store. Other clients may use it too, and it may be remote.
pub(super) struct Given {
    url: String,
    prefix: String,
}

impl Given {
    pub(super) fn new(url: &str) -> Self {
        Self { url: url.to_owned(), prefix: format!("dlock-soak/{:08x}", rand::random::<u32>()) }
    }
}

#[async_trait]
impl Topology for Given {
    fn url(&self) -> String {
        self.url.clone()
    }

    fn faults(&self) -> Vec<Fault> {
        Fault::HOLDERS.into()
    }

    async fn inject(&self, _: Fault) -> Result<Effect, Stop> {
        Ok(nothing())
    }

    fn load(&self) -> Load {
        Load::new(&self.prefix).with_leases(&[1000, 2000].map(Duration::from_millis))
    }
}

fn nothing() -> Effect {
    Effect::Missed("nothing can be done to this store".to_owned())
}
