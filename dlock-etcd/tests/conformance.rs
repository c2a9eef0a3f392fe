//! The conformance suite on etcd, in its two settings: one server, and an ensemble of three.

use std::time::Duration;

use async_trait::async_trait;
use dlock_core::{DynBackend, Error, LockName};
use dlock_etcd::{Etcd, EtcdConfig};
use dlock_testkit::{Bounds, Opened, Store};
use dlock_testlab::{
    Stop,
    etcd::{Ensemble, EtcdServer, Options},
};

/// One way to run etcd.
enum Setting {
    Single,
    Ensemble,
}

/// Private servers, which end when this value is dropped.
enum Servers {
    Single(Box<EtcdServer>),
    Ensemble(Ensemble),
}

#[async_trait]
impl Store for Setting {
    fn name(&self) -> &str {
        "etcd"
    }

    fn setting(&self) -> &str {
        match self {
            Self::Single => "single",
            Self::Ensemble => "ensemble",
        }
    }

    async fn open(&self) -> Result<Box<dyn Opened>, Stop> {
        let options = Options::new();
        Ok(Box::new(match self {
            Self::Single => Servers::Single(Box::new(EtcdServer::start(&options).await?)),
            Self::Ensemble => Servers::Ensemble(Ensemble::start(&options).await?),
        }))
    }

    async fn connect_to(&self, address: &str) -> Result<DynBackend, Error> {
        Etcd::connect(EtcdConfig::from_url(address)?).await
    }
}

#[async_trait]
impl Opened for Servers {
    async fn connect(&self) -> Result<DynBackend, Error> {
        Etcd::connect(EtcdConfig::from_url(&self.url())?).await
    }

    fn address(&self) -> Option<String> {
        Some(self.url())
    }

    async fn leftovers(&self, name: &LockName) -> Result<Vec<String>, Stop> {
        let name = name.as_str().replace('%', "%25").replace('/', "%2F");
        self.server().keys_under(&format!("/dlock/{name}/")).await
    }

    async fn forget(&self, _: &LockName) -> Result<bool, Stop> {
        // A lock without claims has no keys: the server has forgotten it already.
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
        let url = match self {
            Self::Single(server) => server.url(),
            Self::Ensemble(servers) => servers.url(),
        };
        format!("{url}?dlock.session_timeout=15s")
    }

    fn server(&self) -> &EtcdServer {
        match self {
            Self::Single(server) => server,
            Self::Ensemble(servers) => &servers.nodes()[0],
        }
    }
}

fn main() {
    dlock_testkit::run_each(vec![Box::new(Setting::Single), Box::new(Setting::Ensemble)])
}
