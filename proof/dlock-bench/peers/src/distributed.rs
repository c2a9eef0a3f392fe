//! The three crates of `distributed-lock`, which share their traits.

use std::{sync::Arc, time::Duration};

use distributed_lock_core::traits::{DistributedLock, LockHandle, LockProvider};
use distributed_lock_mysql::MySqlLockProvider;
use distributed_lock_postgres::PostgresLockProvider;
use distributed_lock_redis::RedisLockProvider;

use crate::{
    Failure,
    subject::{Lock, Subject, Want, Witness},
};

/// Without a timeout, the lock of MySQL fails on MariaDB.
const WAIT: Option<Duration> = Some(Duration::from_secs(60));

/// The crate for Redis.
pub(crate) async fn redis(url: &str) -> Result<Distributed<RedisLockProvider>, Failure> {
    let no_fair = Some("it does not wait for a lock that is taken");
    Ok(Distributed { provider: Arc::new(RedisLockProvider::new(url).await?), no_fair })
}

/// The crate for PostgreSQL.
pub(crate) async fn postgres(url: &str) -> Result<Distributed<PostgresLockProvider>, Failure> {
    Ok(Distributed { provider: Arc::new(PostgresLockProvider::new(url).await?), no_fair: None })
}

/// The crate for MySQL.
pub(crate) async fn mysql(url: &str) -> Result<Distributed<MySqlLockProvider>, Failure> {
    Ok(Distributed { provider: Arc::new(MySqlLockProvider::new(url).await?), no_fair: None })
}

/// Locks of one of these crates.
pub(crate) struct Distributed<P> {
    provider: Arc<P>,
    /// The reason why no client can wait for a lock.
    no_fair: Option<&'static str>,
}

impl<P> Clone for Distributed<P> {
    fn clone(&self) -> Self {
        Self { provider: Arc::clone(&self.provider), no_fair: self.no_fair }
    }
}

/// A name.
pub(crate) struct Named<L>(L);

impl<P> Subject for Distributed<P>
where
    P: LockProvider + 'static,
    P::Lock: Send + 'static,
{
    type Lock = Named<P::Lock>;

    async fn lock(&self, want: Want<'_>) -> Result<Self::Lock, Failure> {
        match (want, self.no_fair) {
            (Want::Fair(_), Some(reason)) => Err(reason.into()),
            (Want::One(name) | Want::Fair(name), _) => Ok(Named(self.provider.create_lock(name))),
            (Want::Read(_) | Want::Write(_), _) => {
                Err("its read-write lock is not measured".into())
            }
            (Want::All(_), _) => Err("it takes one name at a time".into()),
        }
    }
}

impl<L: DistributedLock + Send + 'static> Lock for Named<L> {
    async fn cycle<W: Witness>(&mut self, witness: &mut W) -> Result<(), Failure> {
        let handle = self.0.acquire(WAIT).await?;
        witness.held(None).await;
        handle.release().await?;
        Ok(())
    }
}
