//! Where locks are kept: a server that was started for the purpose, an SQLite file, or a URL.

use std::time::Duration;

use dlock_testlab::{
    Proxy, Stop, Verdict,
    postgres::{self, PostgresServer},
    redis::{self, Persistence, RedisServer},
    zookeeper::{self, ZooKeeperServer},
};
use tempfile::TempDir;

/// One store.
pub(crate) struct Place {
    pub(crate) name: String,
    /// Without options of dlock.
    url: String,
    server: Server,
}

enum Server {
    Redis(RedisServer),
    ZooKeeper(ZooKeeperServer),
    Postgres(PostgresServer),
    /// Of the file, which goes with it.
    Sqlite(#[expect(dead_code, reason = "it is kept for its drop")] TempDir),
    Given,
}

impl Place {
    /// All that can be started here, and what can't is said. Servers write to the disk before they
    /// answer, as they do where locks matter, but for the Redis that keeps nothing.
    pub(crate) async fn private() -> Vec<Self> {
        let (bare, kept, zk, postgres) = tokio::join!(
            Self::redis("Redis", Persistence::None),
            Self::redis("Redis+AOF", Persistence::AofAlways),
            Self::zookeeper(),
            Self::postgres(),
        );
        let mut places = Vec::new();
        for place in [bare, kept, zk, postgres, Self::sqlite()] {
            match place {
                Ok(place) => places.push(place),
                Err(stop) => eprintln!("left out: {}", stop.into_text()),
            }
        }
        places
    }

    /// A store that is there already. It is called as its scheme: a URL may have a password.
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

    /// Where to connect for locks with this lease. ZooKeeper's leases are half a session long.
    pub(crate) fn url(&self, lease: Duration) -> String {
        let lease = lease.as_millis();
        let options = match &self.server {
            Server::ZooKeeper(_) => format!("&dlock.session_timeout={}ms", lease * 2),
            Server::Postgres(_) | Server::Sqlite(_) => "&dlock.create_schema=true".to_owned(),
            Server::Redis(_) => String::new(),
            // What it needs stands in the URL already.
            Server::Given => return self.url.clone(),
        };
        let and = if self.url.contains('?') { '&' } else { '?' };
        format!("{}{and}dlock.lease={lease}ms{options}", self.url)
    }

    /// A network of its own to the server, and where to connect through it.
    pub(crate) async fn through_proxy(
        &self,
        lease: Duration,
    ) -> Result<Option<(Proxy, String)>, Stop> {
        let Some(address) = self.address() else { return Ok(None) };
        let proxy = Proxy::start(&address).await?;
        let url = self.url(lease).replace(&address, &proxy.address());
        Ok(Some((proxy, url)))
    }

    /// Whether it has a server that may be harmed.
    pub(crate) fn has_server(&self) -> bool {
        self.address().is_some()
    }

    /// Kills the server at once, without a chance to say anything.
    pub(crate) fn kill(&self) {
        match &self.server {
            Server::Redis(server) => server.kill(),
            Server::ZooKeeper(server) => server.kill(),
            Server::Postgres(server) => server.kill(),
            Server::Sqlite(_) | Server::Given => {}
        }
    }

    /// Starts the server that was killed.
    pub(crate) async fn restart(&self) -> Verdict {
        match &self.server {
            Server::Redis(server) => server.restart().await,
            Server::ZooKeeper(server) => server.restart().await,
            Server::Postgres(server) => server.restart().await,
            Server::Sqlite(_) | Server::Given => Ok(()),
        }
    }

    fn address(&self) -> Option<String> {
        match &self.server {
            Server::Redis(server) => Some(server.address()),
            Server::ZooKeeper(server) => Some(server.address()),
            Server::Postgres(server) => Some(server.address()),
            Server::Sqlite(_) | Server::Given => None,
        }
    }
}
