//! The operator requests of the memory backend.

use async_trait::async_trait;

use super::Memory;
use crate::{Admin, Error, FencingToken, Finding, LockName, machine::Op};

#[async_trait]
impl Admin for Memory {
    async fn list(&self, prefix: &str, limit: usize) -> Result<Vec<LockName>, Error> {
        let now = self.micros();
        let mut names = Vec::new();
        for shard in &self.shards {
            let shard = shard.lock();
            let held = shard.names.records.iter().filter(|record| {
                record.name.as_str().starts_with(prefix) && !record.machine.is_free(now)
            });
            names.extend(held.take(limit - names.len()).map(|record| record.name.clone()));
        }
        Ok(names)
    }

    async fn examine(&self) -> Result<Vec<Finding>, Error> {
        Ok(vec![Finding::fine(
            "reach",
            "the locks are in the memory of this process, and no other process sees them",
        )])
    }

    async fn raise_tokens(&self, name: &LockName, above: FencingToken) -> Result<(), Error> {
        self.apply(name, &Op::Raise { above: above.get() }, |_, _, _| ());
        Ok(())
    }
}
