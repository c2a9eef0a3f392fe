//! The subjects that this executable becomes when it is started again: dlock, and the baselines
//! that it is compared with.

pub(crate) mod bare;
mod dlock;
mod etcd;
mod once;
mod push;
pub(crate) mod redis;
mod same;
mod sql;
mod tokio;
mod zk;

use std::process::Command;

use ::tokio::runtime::{Builder, Runtime};

use crate::{Failure, subject::serve};

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
        (own, "sqlite" | "postgres" | "mysql") => {
            serve(&runtime, &runtime.block_on(sql::SqlBaseline::connect(&url, own))?)
        }
        (own, scheme) => Err(format!("no {} of {scheme}", own.name()).into()),
    }
}

/// Returns the server's address: the driver needs it without the rest of the URL.
fn address(url: &str) -> &str {
    let address = url.split("://").nth(1).unwrap_or_default();
    address.split(['/', '?']).next().unwrap_or_default()
}

/// A kind of tokio runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flavour {
    /// One thread for everything. The targets apply to this one, because the scheduler has less
    /// influence.
    CurrentThread,
    /// Two threads, so that a task and the connection's task may run on different ones.
    TwoWorkers,
}

impl Flavour {
    /// Starts a runtime of this kind.
    pub(crate) fn start(self) -> Result<Runtime, Failure> {
        Ok(match self {
            Self::CurrentThread => Builder::new_current_thread().enable_all().build()?,
            Self::TwoWorkers => {
                Builder::new_multi_thread().worker_threads(2).enable_all().build()?
            }
        })
    }

    /// Returns the text for the table.
    pub(crate) const fn label(self) -> &'static str {
        match self {
            Self::CurrentThread => "one thread",
            Self::TwoWorkers => "two threads",
        }
    }
}
