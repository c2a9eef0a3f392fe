//! sqlx's `PgAdvisoryLock`: one connection of a pool for as long as the lock is held or waited for.

use sqlx::{
    PgPool,
    postgres::{PgAdvisoryLock, PgPoolOptions},
};

use crate::{
    Failure,
    subject::{Lock, Subject, Want, Witness},
};

/// The connections of each process; the server permits 500.
const CONNECTIONS: u32 = 32;

/// A pool.
#[derive(Clone)]
pub(crate) struct Advisory(PgPool);

impl Advisory {
    pub(crate) async fn connect(url: &str) -> Result<Self, Failure> {
        Ok(Self(PgPoolOptions::new().max_connections(CONNECTIONS).connect(url).await?))
    }
}

/// A name.
pub(crate) struct Named {
    pool: PgPool,
    lock: PgAdvisoryLock,
}

impl Subject for Advisory {
    type Lock = Named;

    async fn lock(&self, want: Want<'_>) -> Result<Named, Failure> {
        match want {
            Want::One(name) | Want::Fair(name) => {
                Ok(Named { pool: self.0.clone(), lock: PgAdvisoryLock::new(name) })
            }
            Want::Read(_) | Want::Write(_) => Err("it has no read-write lock".into()),
            Want::All(_) => Err("it takes one name at a time".into()),
        }
    }
}

impl Lock for Named {
    async fn cycle<W: Witness>(&mut self, witness: &mut W) -> Result<(), Failure> {
        let guard = self.lock.acquire(self.pool.acquire().await?).await?;
        witness.held(None).await;
        guard.release_now().await?;
        Ok(())
    }
}
