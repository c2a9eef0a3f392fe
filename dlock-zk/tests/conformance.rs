//! The conformance suite on ZooKeeper, in its two settings: one server, and an ensemble of three.

use std::time::Duration;

use async_trait::async_trait;
use dlock_core::{DynBackend, Error, LockName};
use dlock_testkit::{Bounds, Opened, Store};
use dlock_testlab::{
    Stop,
    zookeeper::{Ensemble, Options, ZooKeeperServer},
};
use dlock_zk::{ZkConfig, ZooKeeper};
use percent_encoding::percent_decode_str;

/// One way to run ZooKeeper.
enum Setting {
    Standalone,
    Ensemble,
}

/// Private servers, which end when this value is dropped.
enum Servers {
    Standalone(Box<ZooKeeperServer>),
    Ensemble(Ensemble),
}

#[async_trait]
impl Store for Setting {
    fn name(&self) -> &str {
        "zk"
    }

    fn setting(&self) -> &str {
        match self {
            Self::Standalone => "standalone",
            Self::Ensemble => "ensemble",
        }
    }

    async fn open(&self) -> Result<Box<dyn Opened>, Stop> {
        let options = Options::new();
        Ok(Box::new(match self {
            Self::Standalone => {
                Servers::Standalone(Box::new(ZooKeeperServer::start(&options).await?))
            }
            Self::Ensemble => Servers::Ensemble(Ensemble::start(&options).await?),
        }))
    }

    async fn connect_to(&self, address: &str) -> Result<DynBackend, Error> {
        ZooKeeper::connect(ZkConfig::from_url(address)?).await
    }
}

#[async_trait]
impl Opened for Servers {
    async fn connect(&self) -> Result<DynBackend, Error> {
        ZooKeeper::connect(ZkConfig::from_url(&self.url())?).await
    }

    fn address(&self) -> Option<String> {
        Some(self.url())
    }

    async fn leftovers(&self, name: &LockName) -> Result<Vec<String>, Stop> {
        // The servers remove an empty directory.
        let nodes = self.nodes_of(name).await?;
        Ok(nodes.into_iter().filter(|path| path.matches('/').count() > 2).collect())
    }

    async fn forget(&self, name: &LockName) -> Result<bool, Stop> {
        for path in self.nodes_of(name).await? {
            self.server().delete_recursively(&path).await?;
        }
        Ok(true)
    }

    fn bounds(&self) -> Bounds {
        let mut bounds = Bounds::default();
        bounds.lease = Duration::from_millis(800);
        bounds
    }
}

impl Servers {
    fn url(&self) -> String {
        let hosts = match self {
            Self::Standalone(server) => server.address(),
            Self::Ensemble(servers) => servers.connect_string(),
        };
        format!("zk://{hosts}?dlock.session_timeout=10s")
    }

    fn server(&self) -> &ZooKeeperServer {
        match self {
            Self::Standalone(server) => server,
            Self::Ensemble(servers) => &servers.nodes()[0],
        }
    }

    /// Returns the paths of all nodes of a name, read without the backend.
    async fn nodes_of(&self, name: &LockName) -> Result<Vec<String>, Stop> {
        let nodes = self.server().nodes_under("/dlock").await?.into_iter();
        let of_name = nodes.filter(|path| {
            let dir = path.split('/').nth(2).unwrap_or_default();
            percent_decode_str(dir).decode_utf8().is_ok_and(|dir| dir == name.as_str())
        });
        Ok(of_name.collect())
    }
}

fn main() {
    dlock_testkit::run_each(vec![Box::new(Setting::Standalone), Box::new(Setting::Ensemble)])
}
