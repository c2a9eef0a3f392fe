//! The stores that are compared: private servers, an SQLite file, or a URL.

use std::time::Duration;

use dlock_testlab::{
    Proxy, Stop, Verdict,
    etcd::{self, EtcdServer},
    postgres::{self, PostgresServer},
    redis::{self, Persistence, RedisServer},
    zookeeper::{self, ZooKeeperServer},
};
use tempfile::TempDir;

/// One store.
pub(crate) struct Store {
    pub(crate) name: String,
    /// The URL without options of dlock.
    url: String,
    server: Server,
}

enum Server {
    Redis(RedisServer),
    ZooKeeper(ZooKeeperServer),
    Etcd(EtcdServer),
    Postgres(PostgresServer),
    /// The directory of the file. The file is removed with it.
    Sqlite(#[expect(dead_code, reason = "it is kept for its drop")] TempDir),
    Given,
}

impl Store {
    /// Starts every store that can be started here, and prints which ones can't. Servers write to
    /// the disk before they answer, as production servers for locks do, except the Redis without
    /// persistence.
    pub(crate) async fn private() -> Vec<Self> {
        let (bare, kept, zk, etcd, postgres) = tokio::join!(
            Self::redis("Redis", Persistence::None),
            Self::redis("Redis+AOF", Persistence::AofAlways),
            Self::zookeeper(),
            Self::etcd(),
            Self::postgres(),
        );
        let mut stores = Vec::new();
        for store in [bare, kept, zk, etcd, postgres, Self::sqlite()] {
            match store {
                Ok(store) => stores.push(store),
                Err(stop) => eprintln!("left out: {}", stop.into_text()),
            }
        }
        stores
    }

    /// Returns an existing store. Its display name is its scheme, because a URL may contain a
    /// password.
    pub(crate) fn given(url: &str) -> Self {
        let scheme = url.split(':').next().unwrap_or(url);
        Self { name: scheme.to_owned(), url: url.to_owned(), server: Server::Given }
    }

    async fn redis(name: &str, kept: Persistence) -> Result<Self, Stop> {
        let options = redis::Options::new().with_persistence(kept);
        let server = RedisServer::start(&options).await?;
        Ok(Self { name: name.to_owned(), url: server.url(), server: Server::Redis(server) })
    }

    async fn zookeeper() -> Result<Self, Stop> {
        let server = ZooKeeperServer::start(&zookeeper::Options::new().with_fsync(true)).await?;
        let url = format!("zk://{}", server.address());
        Ok(Self { name: "ZooKeeper".to_owned(), url, server: Server::ZooKeeper(server) })
    }

    async fn etcd() -> Result<Self, Stop> {
        let server = EtcdServer::start(&etcd::Options::new().with_fsync(true)).await?;
        Ok(Self { name: "etcd".to_owned(), url: server.url(), server: Server::Etcd(server) })
    }

    async fn postgres() -> Result<Self, Stop> {
        let server = PostgresServer::start(&postgres::Options::new().with_fsync(true)).await?;
        let url = server.url();
        Ok(Self { name: "PostgreSQL".to_owned(), url, server: Server::Postgres(server) })
    }

    fn sqlite() -> Result<Self, Stop> {
        let dir = TempDir::with_prefix("dlock-versus-")?;
        let url = format!("sqlite:{}", dir.path().join("locks.db").display());
        Ok(Self { name: "SQLite".to_owned(), url, server: Server::Sqlite(dir) })
    }

    /// Returns the URL for locks with this lease. On ZooKeeper a lease is half a session long, on etcd
    /// two thirds, but etcd counts whole seconds and keeps a session for two at least.
    pub(crate) fn url(&self, lease: Duration) -> String {
        let lease = lease.as_millis();
        let options = match &self.server {
            Server::ZooKeeper(_) => format!("&dlock.session_timeout={}ms", lease * 2),
            Server::Etcd(_) => {
                format!("&dlock.session_timeout={}s", (lease * 3).div_ceil(2000).max(2))
            }
            Server::Postgres(_) | Server::Sqlite(_) => "&dlock.create_schema=true".to_owned(),
            Server::Redis(_) => String::new(),
            // The URL already contains all options.
            Server::Given => return self.url.clone(),
        };
        let and = if self.url.contains('?') { '&' } else { '?' };
        format!("{}{and}dlock.lease={lease}ms{options}", self.url)
    }

    /// Starts a proxy to the server, and returns it with the URL that leads through it.
    pub(crate) async fn through_proxy(
        &self,
        lease: Duration,
    ) -> Result<Option<(Proxy, String)>, Stop> {
        let Some(address) = self.address() else { return Ok(None) };
        let proxy = Proxy::start(&address).await?;
        let url = self.url(lease).replace(&address, &proxy.address());
        Ok(Some((proxy, url)))
    }

    /// Whether there is a server into which faults may be injected.
    pub(crate) fn has_server(&self) -> bool {
        self.address().is_some()
    }

    /// Kills the server without a chance to clean up.
    pub(crate) fn kill(&self) {
        match &self.server {
            Server::Redis(server) => server.kill(),
            Server::ZooKeeper(server) => server.kill(),
            Server::Etcd(server) => server.kill(),
            Server::Postgres(server) => server.kill(),
            Server::Sqlite(_) | Server::Given => {}
        }
    }

    /// Starts the killed server again.
    pub(crate) async fn restart(&self) -> Verdict {
        match &self.server {
            Server::Redis(server) => server.restart().await,
            Server::ZooKeeper(server) => server.restart().await,
            Server::Etcd(server) => server.restart().await,
            Server::Postgres(server) => server.restart().await,
            Server::Sqlite(_) | Server::Given => Ok(()),
        }
    }

    fn address(&self) -> Option<String> {
        match &self.server {
            Server::Redis(server) => Some(server.address()),
            Server::ZooKeeper(server) => Some(server.address()),
            Server::Etcd(server) => Some(server.address()),
            Server::Postgres(server) => Some(server.address()),
            Server::Sqlite(_) | Server::Given => None,
        }
    }
}
