#![doc = include_str!("../README.md")]

#[cfg(feature = "blocking")]
pub mod blocking;
mod connect;

pub use connect::{connect, connect_with, registry};
#[cfg(feature = "metrics")]
pub use dlock_core::metrics;
pub use dlock_core::{
    BackendUrl, Certainty, ClaimId, ClaimState, Clock, ConfigIssue, Counting, DynBackend, Election,
    Ended, Error, ErrorKind, Exclusion, Factory, Fair, FairLock, Fairness, Fence, Fencing,
    FencingToken, Finding, Format, Guarantees, Guard, GuardState, Health, IntoName, Job,
    Leadership, Level, Lock, LockExt, LockName, LockOptions, LockProvider, LockState, Locks, Lost,
    Memory, Mode, Multi, MultiLock, Mutex, Note, Notes, OrphanRelease, Owner, Permits, Prefixed,
    Ran, ReadWrite, ReadWriteLock, Reentrant, ReentrantLock, Registry, Released, Renew, Scope,
    Semaphore, Side, StaleToken, TokenOffset, Traced, WakeUp, observe,
};

/// Locks in an SQLite file, for the processes of one machine.
///
/// The file must be on a local disk, and must not be deleted or replaced while a program uses it:
/// those who have it open would go on with the old one, and two would hold a lock. It must have one
/// name, and nothing else in the process may open it: see the guide's chapter on SQLite.
#[cfg(feature = "sqlite")]
pub mod sqlite {
    pub use dlock_sql::{SQLITE as FACTORY, Sqlite, SqliteConfig};
}

/// Locks in a PostgreSQL database.
#[cfg(feature = "postgres")]
pub mod postgres {
    pub use dlock_sql::{Durability, POSTGRES as FACTORY, Postgres, PostgresConfig};
}

/// Locks in a MySQL or MariaDB database.
#[cfg(feature = "mysql")]
pub mod mysql {
    pub use dlock_sql::{Durability, MYSQL as FACTORY, Mysql, MysqlConfig};
}

/// Locks on Redis or Valkey: one server, Sentinel, Cluster, or a quorum of masters.
#[cfg(feature = "redis")]
pub mod redis {
    pub use dlock_redis::{Durability, REDIS as FACTORY, Redis, RedisConfig};
}

/// Locks on ZooKeeper, one server or an ensemble.
#[cfg(feature = "zk")]
pub mod zk {
    pub use dlock_zk::{ZK as FACTORY, ZkConfig, ZooKeeper};
}
