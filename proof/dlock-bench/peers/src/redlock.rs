//! `redlock`: blocks its thread, with a new connection for each request.

use std::sync::Arc;

use redlock::RedLock;
use tokio::task::spawn_blocking;

use crate::{
    Failure,
    subject::{Lock, Subject, Want, Witness},
};

/// In milliseconds.
const LEASE: usize = 30_000;

/// The state that all locks share.
#[derive(Clone)]
pub(crate) struct Redlock(Arc<RedLock>);

impl Redlock {
    pub(crate) fn new(url: &str) -> Self {
        Self(Arc::new(RedLock::new(vec![url])))
    }
}

/// A name.
pub(crate) struct Named {
    manager: Arc<RedLock>,
    name: Arc<str>,
}

impl Subject for Redlock {
    type Lock = Named;

    async fn lock(&self, want: Want<'_>) -> Result<Named, Failure> {
        match want {
            Want::One(name) => Ok(Named { manager: Arc::clone(&self.0), name: name.into() }),
            // Its waiters use up the local ports with closed connections.
            Want::Fair(_) => Err("it makes a connection for each try while it waits".into()),
            Want::Read(_) | Want::Write(_) => Err("it has no read-write lock".into()),
            Want::All(_) => Err("it takes one name at a time".into()),
        }
    }
}

impl Lock for Named {
    async fn cycle<W: Witness>(&mut self, witness: &mut W) -> Result<(), Failure> {
        loop {
            let (manager, name) = (Arc::clone(&self.manager), Arc::clone(&self.name));
            // The same retries as in `acquire`, but an abandoned waiter stops.
            let cycle = move || {
                let lock = manager.lock(name.as_bytes(), LEASE)?;
                lock.as_ref().inspect(|lock| manager.unlock(lock));
                Ok::<_, Failure>(lock.is_some())
            };
            if spawn_blocking(cycle).await?? {
                witness.held(None).await;
                return Ok(());
            }
        }
    }
}
