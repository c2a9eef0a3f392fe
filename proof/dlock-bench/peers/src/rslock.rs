//! `rslock`: `SET NX PX`, with a retry after a random time of up to 200 ms.

use std::time::Duration;

use rslock::LockManager;

use crate::{
    Failure,
    subject::{Lock, Subject, Want, Witness},
};

const LEASE: Duration = Duration::from_secs(30);

/// Connections that all locks share.
#[derive(Clone)]
pub(crate) struct Rslock(LockManager);

impl Rslock {
    pub(crate) fn new(url: &str) -> Self {
        Self(LockManager::new(vec![url]))
    }
}

/// A name.
pub(crate) struct Named {
    manager: LockManager,
    name: String,
}

impl Subject for Rslock {
    type Lock = Named;

    async fn lock(&self, want: Want<'_>) -> Result<Named, Failure> {
        match want {
            Want::One(name) | Want::Fair(name) => {
                Ok(Named { manager: self.0.clone(), name: name.to_owned() })
            }
            Want::Read(_) | Want::Write(_) => Err("it has no read-write lock".into()),
            Want::All(_) => Err("it takes one name at a time".into()),
        }
    }
}

impl Lock for Named {
    async fn cycle<W: Witness>(&mut self, witness: &mut W) -> Result<(), Failure> {
        let guard = self.manager.acquire(self.name.as_bytes(), LEASE).await?;
        witness.held(None).await;
        guard.release().await;
        Ok(())
    }
}
