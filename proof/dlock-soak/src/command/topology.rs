//! The stores that faults are injected into, with the network between them and the holders.

mod ensemble;
mod etcd;
mod network;
mod plain;
mod quorum;
mod sentinel;
mod single;

use std::time::Duration;

use async_trait::async_trait;
use dlock_core::{DynBackend, Error, Memory, Registry};
use dlock_testkit::Stop;

use super::fault::{Effect, Fault};
use crate::{Kind, Load};

pub(super) use network::Network;

/// A store that faults are injected into.
#[async_trait]
pub(super) trait Topology: Send + Sync {
    /// Returns the URL for the holders, which leads through the proxy.
    fn url(&self) -> String;

    /// Returns the URL for the checks after the run, which leads to the store directly.
    fn direct_url(&self) -> String {
        self.url()
    }

    /// Returns the faults that can be injected here, into holders or the store.
    fn faults(&self) -> Vec<Fault>;

    /// Injects a fault into the store, and repairs the store.
    ///
    /// # Errors
    /// If the store can't be repaired.
    async fn inject(&self, fault: Fault) -> Result<Effect, Stop>;

    /// Whether, after this fault, two clients may hold the same lock, and held
    /// locks may be lost.
    fn excuses(&self, fault: Fault) -> bool {
        fault.may_let_two_in()
    }

    /// Whether the store deletes old records only while a client is connected.
    fn is_swept_by_clients(&self) -> bool {
        true
    }

    /// Returns what the store contains of locks without holders and waiters.
    async fn left(&self) -> Result<Vec<String>, Stop> {
        Ok(Vec::new())
    }

    /// Returns the number of the store's connections, without those of this observer.
    async fn connections(&self) -> Result<usize, Stop> {
        Ok(0)
    }

    /// Returns the work of the holders.
    fn load(&self) -> Load {
        many_locks(Load::new("soak"))
    }
}

/// A store, as the command line names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum StoreArg {
    /// A private store that is started for the run.
    Private(&'static Setup),
    /// An existing store; faults are injected into its holders only.
    Given(String),
}

/// A private store.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Setup {
    /// The name, as in `private:redis`.
    pub(super) name: &'static str,
    /// A description for people.
    pub(super) what: &'static str,
    /// The name in `DLOCK_TEST_REQUIRE`.
    pub(super) store: &'static str,
    /// The smallest number of grants a minute for a verdict.
    pub(super) grants: u32,
}

const MANY: u32 = 5000;
const FEW: u32 = 2000;

/// All private stores.
pub(super) const SETUPS: [Setup; 12] = [
    setup("memory", "memory", "tasks of one process", MANY),
    setup("sqlite", "sqlite", "a file", FEW),
    setup("redis", "redis", "one server, every write on disk", MANY),
    setup("redis-forgetful", "redis", "one server that keeps nothing", MANY),
    setup("redis-sentinel", "redis", "a master and two replicas", FEW),
    setup("redis-quorum", "redis", "five masters that keep nothing, restart guard", FEW),
    setup("postgres", "postgres", "one server", MANY),
    setup("postgres-forgetful", "postgres", "one server, restored from an old copy", MANY),
    setup("mysql", "mysql", "one server", MANY),
    setup("mysql-forgetful", "mysql", "one server, restored from an old copy", MANY),
    setup("zk", "zk", "an ensemble of three", FEW),
    setup("etcd", "etcd", "a cluster of three", FEW),
];

const fn setup(name: &'static str, store: &'static str, what: &'static str, grants: u32) -> Setup {
    Setup { name, what, store, grants }
}

impl StoreArg {
    /// Parses `private:NAME` or a URL.
    ///
    /// # Errors
    /// A text with the names that exist.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let Some(name) = text.strip_prefix("private:") else {
            return match text.contains(':') {
                true => Ok(Self::Given(text.to_owned())),
                false => Err(format!(
                    "{text:?} is no URL: use private:NAME for a private store, or the URL of one \
                     that is there"
                )),
            };
        };
        let found = SETUPS.iter().find(|setup| setup.name == name);
        found.map(Self::Private).ok_or_else(|| {
            let names: Vec<_> = SETUPS.iter().map(|setup| setup.name).collect();
            format!("there is no private store {name:?}: use one of {}", names.join(", "))
        })
    }

    /// Returns its name in reports. For an existing store this is the scheme, since the URL may
    /// contain secrets.
    pub(super) fn name(&self) -> &str {
        match self {
            Self::Private(setup) => setup.name,
            Self::Given(url) => url.split(':').next().unwrap_or_default(),
        }
    }

    /// Returns a description for people.
    pub(super) fn what(&self) -> &str {
        match self {
            Self::Private(setup) => setup.what,
            Self::Given(_) => "a store that was there, with faults of its holders only",
        }
    }

    /// Returns the smallest number of grants a minute for a verdict.
    pub(super) fn grants(&self) -> u32 {
        match self {
            Self::Private(setup) => setup.grants,
            Self::Given(_) => FEW,
        }
    }

    /// Starts the store.
    ///
    /// # Errors
    /// [`Stop::missing`], if its programs are not installed.
    pub(super) async fn open(&self) -> Result<Box<dyn Topology>, Stop> {
        let setup = match self {
            Self::Private(setup) => setup,
            Self::Given(url) => return Ok(Box::new(plain::Given::new(url))),
        };
        Ok(match setup.name {
            "memory" => Box::new(plain::Memory),
            "sqlite" => Box::new(plain::Sqlite::new()?),
            "redis-sentinel" => Box::new(sentinel::Sentinel::start().await?),
            "redis-quorum" => Box::new(quorum::Quorum::start().await?),
            "zk" => Box::new(ensemble::ThreeServers::start().await?),
            "etcd" => Box::new(etcd::ThreeMembers::start().await?),
            name => {
                let forgets = name.ends_with("-forgetful");
                Box::new(single::Single::start(setup.store, forgets).await?)
            }
        })
    }
}

/// Connects to a store of any kind.
pub(super) async fn connect(url: String) -> Result<DynBackend, Error> {
    let registry = Registry::new()
        .with(Memory::FACTORY)
        .with(dlock_sql::SQLITE)
        .with(dlock_sql::POSTGRES)
        .with(dlock_sql::MYSQL)
        .with(dlock_redis::REDIS)
        .with(dlock_zk::ZK)
        .with(dlock_etcd::FACTORY);
    registry.connect(url.parse()?, &[]).await
}

/// Adds locks with little contention to the load.
fn many_locks(load: Load) -> Load {
    load.with_lock(Kind::Mutex, &["soak/e"])
        .with_lock(Kind::Fair, &["soak/f"])
        .with_lock(Kind::Mutex, &["soak/g"])
        .with_lock(Kind::ReadWrite, &["soak/h"])
}

/// Returns a random time between these bounds, in milliseconds.
fn some(from: u64, to: u64) -> Duration {
    Duration::from_millis(rand::random_range(from..=to))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read() {
        for setup in &SETUPS {
            let place = StoreArg::parse(&format!("private:{}", setup.name));
            assert_eq!(place, Ok(StoreArg::Private(setup)));
        }
        let given = "redis://user:secret@host:6379";
        assert_eq!(StoreArg::parse(given).map(|place| place.name().to_owned()), Ok("redis".into()));
    }

    #[test]
    fn an_unknown_store_is_refused_with_the_known_ones() {
        let error = StoreArg::parse("private:oracle").unwrap_err();
        assert!(error.contains("redis-sentinel"), "{error}");
        assert!(StoreArg::parse("redis").unwrap_err().contains("private:NAME"));
    }
}
