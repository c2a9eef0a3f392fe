//! Distributed locks for services that run on several machines, where only one of them may act at a
//! time: sell the last item in stock, run the nightly job, migrate a schema. One API covers Redis,
//! PostgreSQL, MySQL, MariaDB, ZooKeeper, etcd, SQLite and memory. Every lock has a lease that is renewed
//! in the background, and a fencing token by which a resource refuses late writes.
//!
//! # Quick start
//!
//! ```
//! use std::time::Duration;
//!
//! #[tokio::main(flavor = "current_thread")]
//! async fn main() -> Result<(), dlock::Error> {
//!     // With the feature `redis`: "redis://localhost"; with `zk`: "zk://z1,z2,z3".
//!     let locks = dlock::connect("memory:").await?;
//!
//!     let guard = locks.mutex("inventory/42")?.lock().await?;
//!     println!("write with fencing token {}", guard.token());
//!     guard.release().await?;
//!
//!     // Guards that were dropped just before are released here.
//!     locks.shutdown(Duration::from_secs(5)).await
//! }
//! ```
//!
//! Make one [`Locks`] for each process, and clone it. Code without a runtime uses the module
//! `blocking`.
//!
//! # Which lock for which problem
//!
//! | problem | type | made by |
//! |---|---|---|
//! | one holder at a time | [`Mutex`] | [`Locks::mutex`] |
//! | one holder, in order of arrival over all processes | [`FairMutex`] | [`Locks::fair`] |
//! | functions that call each other under one lock | [`ReentrantMutex`] | [`Locks::reentrant`] |
//! | many readers or one writer | [`RwLock`] | [`Locks::rw`] |
//! | at most N at a time | [`CountingSemaphore`] | [`Locks::semaphore`] |
//! | several resources, all or none, without deadlock | [`MultiMutex`] | [`Locks::multi`] |
//! | one leader | [`Election`](election::Election) | [`Locks::election`] |
//! | a job that runs once, on any machine | [`Job`](job::Job) | [`Locks::job`] |
//!
//! Every lock returns a [`Guard`]. Dropping it releases the lock in the background;
//! [`Guard::release`] also reports the outcome. [`LockExt::with`] runs code under a lock, and
//! cancels it if the lock is lost.
//!
//! # What a lock promises
//!
//! A lease can expire while its holder still works: after a pause of the process, or when the store
//! is unreachable. [`Guard::lost`] and [`Guard::check`] report this to the holder. Only the fencing
//! token protects the data: send [`Guard::token`] with every write, and let the resource refuse a
//! token that is smaller than one it has seen ([`fencing::Fence`]).
//!
//! Stores differ in what they keep through a restart or a failover. [`Locks::guarantees`] returns
//! these promises as a value, and [`Locks::require`] fails if the store promises less than the
//! program needs. `GUARANTEES.md` in the repository explains each promise; the guide in `docs/src`
//! explains how to choose, operate, test and migrate.
//!
//! # Features
//!
//! `memory:` is always available. Each other store is a feature, and cargo compiles only the
//! drivers of the enabled features.
//!
//! | feature | adds |
//! |---|---|
//! | `redis` | Redis and Valkey: one server, Sentinel, Cluster, a quorum of masters |
//! | `postgres`, `mysql`, `sqlite` | PostgreSQL; MySQL and MariaDB; an SQLite file |
//! | `zk` | ZooKeeper |
//! | `etcd` | etcd |
//! | `tls` | TLS for the stores above |
//! | `blocking` | locks for code without a runtime |
//! | `metrics` | counters and histograms, by the crate `metrics` |
//!
//! # Modules
//!
//! The root contains what every program uses. [`kinds`] contains the traits of locks, [`guard`] the
//! states of a hold, [`error`] the parts of an [`Error`], [`guarantees`] the promises of a store,
//! [`admin`] the types for operators, and [`backend`] the types that wrap, register and replace
//! stores.
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(feature = "blocking")]
#[cfg_attr(docsrs, doc(cfg(feature = "blocking")))]
pub mod blocking;
mod connect;

pub use connect::{ConnectOptions, connect, connect_with};
#[cfg(feature = "metrics")]
#[cfg_attr(docsrs, doc(cfg(feature = "metrics")))]
#[doc(inline)]
pub use dlock_core::metrics;
#[doc(inline)]
pub use dlock_core::observe;
pub use dlock_core::{
    CountingSemaphore, Error, ErrorKind, FairMutex, FencingToken, Guard, LockExt, LockName,
    LockOptions, Locks, MultiMutex, Mutex, ReentrantMutex, RwLock,
};

/// The traits of the kinds of lock, for code that takes any lock, and the parameters of their
/// methods.
pub mod kinds {
    pub use dlock_core::{
        FairLock, IntoName, Lock, LockExt, LockProvider, MultiLock, Owner, ReadWriteLock,
        ReentrantLock, Semaphore, Side,
    };
}

/// How a hold is renewed, and how it can end.
pub mod guard {
    pub use dlock_core::{Ended, Guard, GuardState, Lost, Released, Renew};
}

/// The parts of an [`Error`]: its kind, the problem with a setting, and its certainty, which says
/// whether the store may have applied the request.
pub mod error {
    pub use dlock_core::{Certainty, ConfigIssue, Error, ErrorKind};
}

/// How a resource refuses the writes of a holder that has lost its lock.
pub mod fencing {
    pub use dlock_core::{Fence, FencingToken, StaleToken};
}

/// One leader among many candidates.
pub mod election {
    pub use dlock_core::{Election, Leadership};
}

/// Jobs that run once, on any machine.
pub mod job {
    pub use dlock_core::{Job, Ran};
}

/// The promises of a store, as values that a program can require.
pub mod guarantees {
    pub use dlock_core::{
        Exclusion, Fairness, Fencing, Guarantees, Notes, OrphanRelease, Permits, Scope, WakeUp,
    };
}

/// Types for operators: holders, waiters, findings, health.
pub mod admin {
    pub use dlock_core::{ClaimId, ClaimState, Finding, Health, Level, LockState, Mode, Note};
}

/// Stores: the memory backend, wrappers of any backend, and the registry that maps URLs to
/// backends. Authors of other backends find the contract in the crate `dlock-core`.
pub mod backend {
    pub use dlock_core::{
        Backend, BackendUrl, Clock, DynBackend, Factory, Memory, Noted, Prefixed, Registry,
        TokenOffset, Traced,
    };

    pub use crate::connect::registry;
}

/// Locks in an SQLite file, for the processes of one machine.
///
/// The file must be on a local disk. Do not delete or replace it while a program uses it: programs
/// that have the old file open would continue to use it, and two clients could hold one lock. The
/// file must have one name, and nothing else in the process may open it: see the guide's chapter on
/// SQLite.
#[cfg(feature = "sqlite")]
#[cfg_attr(docsrs, doc(cfg(feature = "sqlite")))]
pub mod sqlite {
    pub use dlock_sql::{SQLITE as FACTORY, Sqlite, SqliteConfig};
}

/// Locks in a PostgreSQL database.
#[cfg(feature = "postgres")]
#[cfg_attr(docsrs, doc(cfg(feature = "postgres")))]
pub mod postgres {
    pub use dlock_sql::{Durability, POSTGRES as FACTORY, Postgres, PostgresConfig};
}

/// Locks in a MySQL or MariaDB database.
#[cfg(feature = "mysql")]
#[cfg_attr(docsrs, doc(cfg(feature = "mysql")))]
pub mod mysql {
    pub use dlock_sql::{Durability, MYSQL as FACTORY, Mysql, MysqlConfig};
}

/// Locks on Redis or Valkey: one server, Sentinel, Cluster, or a quorum of masters.
#[cfg(feature = "redis")]
#[cfg_attr(docsrs, doc(cfg(feature = "redis")))]
pub mod redis {
    pub use dlock_redis::{Durability, REDIS as FACTORY, Redis, RedisConfig};
}

/// Locks on ZooKeeper, one server or an ensemble.
#[cfg(feature = "zk")]
#[cfg_attr(docsrs, doc(cfg(feature = "zk")))]
pub mod zk {
    pub use dlock_zk::{ZK as FACTORY, ZkConfig, ZooKeeper};
}

/// Locks on etcd, one member or a cluster.
#[cfg(feature = "etcd")]
#[cfg_attr(docsrs, doc(cfg(feature = "etcd")))]
pub mod etcd {
    pub use dlock_etcd::{Etcd, EtcdConfig, FACTORY};
}

/// The doctests also run the code of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
