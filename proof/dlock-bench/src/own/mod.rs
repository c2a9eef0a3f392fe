//! The subjects that this executable becomes when it is started again: dlock, and the baselines
//! that it is compared with.

pub(crate) mod bare;
pub(crate) mod baseline;
mod dlock;
mod etcd;
mod once;
mod push;
mod redis;
mod same;
mod server;
mod sql;
mod sqlite;
mod tokio;
mod zk;

use std::process::Command;

use crate::{Failure, runtime::Flavour, subject::serve};

/// The environment variable that makes a process a subject. It contains the subject and the store.
const SUBJECT: &str = "DLOCK_BENCH_SUBJECT";
const URL: &str = "DLOCK_BENCH_SUBJECT_URL";
const FLAVOUR: &str = "DLOCK_BENCH_SUBJECT_THREADS";

/// The reason why the baselines have no lock with a queue.
const NO_WAIT: &str = "the baseline does not wait";

/// A subject of this executable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Own {
    /// dlock.
    Dlock,
    /// A minimal lock by the bare driver: one request after another for one name, and pipelined
    /// over one connection for many names if the driver supports that.
    Bare,
    /// All requests of dlock for an uncontended lock, by the bare driver; on Redis, the requests
    /// that dlock would send without scripts.
    Same,
    /// A write of one row.
    Row,
    /// A message from one process to another.
    Push,
    /// The locks of tokio, for tasks of one process.
    Tokio,
    /// The locks that a server offers as a service of its own.
    LockService,
}

impl Own {
    const ALL: [Self; 7] = [
        Self::Dlock,
        Self::Bare,
        Self::Same,
        Self::Row,
        Self::Push,
        Self::Tokio,
        Self::LockService,
    ];

    /// Returns the name in the report.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Dlock => "dlock",
            Self::Bare => "bare driver",
            Self::Same => "same commands",
            Self::Row => "one row",
            Self::Push => "one push",
            Self::Tokio => "tokio",
            Self::LockService => "Lock service",
        }
    }

    /// Returns the command that starts the subject.
    pub(crate) fn command(self, url: &str, flavour: Flavour) -> Result<Command, Failure> {
        let mut command = Command::new(std::env::current_exe()?);
        command.env(SUBJECT, self.name()).env(URL, url).env(FLAVOUR, flavour.label());
        Ok(command)
    }
}

/// Whether this process is a subject.
pub(crate) fn is_asked_for() -> bool {
    std::env::var_os(SUBJECT).is_some()
}

/// Runs as the requested subject until the parent has ended.
pub(crate) fn be() -> Result<(), Failure> {
    let (name, url) = (std::env::var(SUBJECT)?, std::env::var(URL)?);
    let threads = std::env::var(FLAVOUR)?;
    let flavours = [Flavour::CurrentThread, Flavour::TwoWorkers];
    let flavour = flavours.into_iter().find(|flavour| flavour.label() == threads);
    let runtime = flavour.ok_or("so many threads are not known")?.start()?;
    let own = Own::ALL.into_iter().find(|own| own.name() == name).ok_or("no such subject")?;
    let scheme = url.split(':').next().unwrap_or_default();
    match (own, scheme) {
        (Own::Dlock, _) => serve(&runtime, &runtime.block_on(dlock::Dlock::connect(&url))?),
        (Own::Tokio, _) => serve(&runtime, &tokio::Tokio::default()),
        (Own::Push, _) => serve(&runtime, &push::Push::new(&url)),
        (Own::Bare | Own::Same, "redis") => {
            serve(&runtime, &runtime.block_on(redis::RedisBaseline::connect(&url, own))?)
        }
        (Own::Bare, "etcd") => {
            serve(&runtime, &runtime.block_on(etcd::EtcdBaseline::connect(&url))?)
        }
        (Own::LockService, "etcd") => {
            serve(&runtime, &runtime.block_on(etcd::LockService::connect(&url))?)
        }
        (Own::Bare, "zk") => serve(&runtime, &runtime.block_on(zk::ZkBaseline::connect(&url))?),
        (Own::Same, "sqlite" | "postgres" | "mysql") => {
            serve(&runtime, &runtime.block_on(same::Same::connect(&url))?)
        }
        (own, "sqlite") => serve(
            &runtime,
            &runtime.block_on(sqlite::SqliteBaseline::connect(&url, sql::Does::of(own)))?,
        ),
        (own, "postgres" | "mysql") => serve(
            &runtime,
            &runtime.block_on(server::ServerBaseline::connect(&url, sql::Does::of(own)))?,
        ),
        (own, scheme) => Err(format!("no {} of {scheme}", own.name()).into()),
    }
}

/// Returns the server's address: the driver needs it without the rest of the URL.
fn address(url: &str) -> &str {
    let address = url.split("://").nth(1).unwrap_or_default();
    address.split(['/', '?']).next().unwrap_or_default()
}
