//! Where harm is done: stores of each kind, with what stands between them and the holders.

mod ensemble;
mod network;
mod plain;
mod quorum;
mod sentinel;
mod single;

use std::time::Duration;

use async_trait::async_trait;
use dlock_core::{DynBackend, Error, Memory, Registry};
use dlock_testkit::Stop;

use super::fault::{Bite, Fault};
use crate::{Kind, Load};

pub(super) use network::Network;

/// A store to be harmed.
#[async_trait]
pub(super) trait Arena: Send + Sync {
    /// Where the holders find it: through what can be cut.
    fn url(&self) -> String;

    /// Where it is found when all is over.
    fn quiet_url(&self) -> String {
        self.url()
    }

    /// What can be done here, to holders or the store.
    fn faults(&self) -> Vec<Fault>;

    /// Does harm to the store, and mends it.
    ///
    /// # Errors
    /// When it can't be mended.
    async fn harm(&self, fault: Fault) -> Result<Bite, Stop>;

    /// Whether two may believe in the same lock after it, and what is held may be forgotten.
    fn excuses(&self, fault: Fault) -> bool {
        fault.may_let_two_in()
    }

    /// Whether somebody has to be connected for the store to be swept.
    fn is_swept_by_clients(&self) -> bool {
        true
    }

    /// What the store keeps of locks that nobody holds or waits for.
    async fn left(&self) -> Result<Vec<String>, Stop> {
        Ok(Vec::new())
    }

    /// How many connections the store has, but for those that look at it.
    async fn connections(&self) -> Result<usize, Stop> {
        Ok(0)
    }

    /// What the holders do.
    fn load(&self) -> Load {
        many_locks(Load::new("soak"))
    }
}

/// An arena by its name on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// One that is set up for the purpose.
    Private(&'static Setup),
    /// A store that is there already, of which only the holders are harmed.
    Given(String),
}

/// A private store.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Setup {
    /// As in `private:redis`.
    pub(super) name: &'static str,
    /// What it is, for people.
    pub(super) what: &'static str,
    /// As in `DLOCK_TEST_REQUIRE`.
    pub(super) store: &'static str,
    /// How many grants a minute are the least for a verdict.
    pub(super) grants: u32,
}

const MANY: u32 = 5000;
const FEW: u32 = 2000;

/// All private stores.
pub(super) const SETUPS: [Setup; 11] = [
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
];

const fn setup(name: &'static str, store: &'static str, what: &'static str, grants: u32) -> Setup {
    Setup { name, what, store, grants }
}

impl Place {
    /// Reads `private:NAME`, or a URL.
    ///
    /// # Errors
    /// Says which names there are.
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

    /// Its name in reports. Of a given store it is the kind, since its URL may have secrets.
    pub(super) fn name(&self) -> &str {
        match self {
            Self::Private(setup) => setup.name,
            Self::Given(url) => url.split(':').next().unwrap_or_default(),
        }
    }

    /// What it is, for people.
    pub(super) fn what(&self) -> &str {
        match self {
            Self::Private(setup) => setup.what,
            Self::Given(_) => "a store that was there, only its holders harmed",
        }
    }

    /// The least grants a minute for a verdict.
    pub(super) fn grants(&self) -> u32 {
        match self {
            Self::Private(setup) => setup.grants,
            Self::Given(_) => FEW,
        }
    }

    /// Sets it up.
    ///
    /// # Errors
    /// [`Stop::missing`] without the programs for it.
    pub(super) async fn open(&self) -> Result<Box<dyn Arena>, Stop> {
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
            name => {
                let forgets = name.ends_with("-forgetful");
                Box::new(single::Single::start(setup.store, forgets).await?)
            }
        })
    }
}

/// Connects to any store.
pub(super) async fn connect(url: String) -> Result<DynBackend, Error> {
    let registry = Registry::new()
        .with(Memory::FACTORY)
        .with(dlock_sql::SQLITE)
        .with(dlock_sql::POSTGRES)
        .with(dlock_sql::MYSQL)
        .with(dlock_redis::REDIS)
        .with(dlock_zk::ZK);
    registry.connect(url.parse()?, &[]).await
}

/// With some locks beside those that all want.
fn many_locks(load: Load) -> Load {
    load.with_lock(Kind::Mutex, &["soak/e"])
        .with_lock(Kind::Fair, &["soak/f"])
        .with_lock(Kind::Mutex, &["soak/g"])
        .with_lock(Kind::ReadWrite, &["soak/h"])
}

/// A random time in these bounds, in milliseconds.
fn some(from: u64, to: u64) -> Duration {
    Duration::from_millis(rand::random_range(from..=to))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read() {
        for setup in &SETUPS {
            let place = Place::parse(&format!("private:{}", setup.name));
            assert_eq!(place, Ok(Place::Private(setup)));
        }
        let given = "redis://user:secret@host:6379";
        assert_eq!(Place::parse(given).map(|place| place.name().to_owned()), Ok("redis".into()));
    }

    #[test]
    fn an_unknown_place_is_refused_with_the_known_ones() {
        let error = Place::parse("private:oracle").unwrap_err();
        assert!(error.contains("redis-sentinel"), "{error}");
        assert!(Place::parse("redis").unwrap_err().contains("private:NAME"));
    }
}
