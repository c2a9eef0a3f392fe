//! The suite on the memory backend.

use async_trait::async_trait;
use dlock_core::{DynBackend, Error, LockName, Memory};
use dlock_testkit::{Opened, Stop, Store};

struct InMemory;

struct Open(DynBackend);

#[async_trait]
impl Store for InMemory {
    fn name(&self) -> &str {
        "memory"
    }

    async fn open(&self) -> Result<Box<dyn Opened>, Stop> {
        Ok(Box::new(Open(Memory::new())))
    }
}

#[async_trait]
impl Opened for Open {
    async fn connect(&self) -> Result<DynBackend, Error> {
        Ok(self.0.clone())
    }

    async fn leftovers(&self, name: &LockName) -> Result<Vec<String>, Stop> {
        // The store has no other interface.
        let state = self.0.inspect(name).await?;
        Ok(state.holders.iter().chain(&state.waiters).map(|claim| format!("{claim:?}")).collect())
    }
}

fn main() {
    dlock_testkit::run(InMemory)
}
