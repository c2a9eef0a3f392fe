//! The stores, and a private server of each.

mod etcd;
mod redis;
mod sql;
mod zk;

use std::time::Duration;

use ::redis::{aio::MultiplexedConnection, cmd};
use dlock_testlab::{
    redis::{Options as RedisOptions, RedisServer},
    zookeeper::{Options as ZkOptions, ZooKeeperServer},
};
use serde::{Deserialize, Serialize};
use tempfile::TempDir;

use self::{
    etcd::EtcdServers,
    redis::RedisCounters,
    sql::{Kind, SqlServer},
    zk::ZkCounters,
};
pub(crate) use self::{etcd::Members, sql::Table};
use crate::{
    Failure,
    own::{bare::BareConnection, redis as baseline},
    processors,
};

/// ZooKeeper's default pause between two checks for empty directories. It is so long that a lock
/// hardly ever finds its directory removed.
const CHECKS: Duration = Duration::from_secs(60);

/// The pause in scenarios that wait for the removal.
pub(crate) const SOON: Duration = Duration::from_secs(3);

/// The number of directories that ZooKeeper may remove per minute in these scenarios: more than it
/// can.
const PER_MINUTE: &str = "60000000";

/// A store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Store {
    Memory,
    Sqlite,
    Redis,
    Postgres,
    Mysql,
    Zk,
    Etcd,
}

impl Store {
    pub(crate) const ALL: [Self; 7] = [
        Self::Memory,
        Self::Sqlite,
        Self::Redis,
        Self::Postgres,
        Self::Mysql,
        Self::Zk,
        Self::Etcd,
    ];

    /// Returns the name on the command line.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Sqlite => "sqlite",
            Self::Redis => "redis",
            Self::Postgres => "postgres",
            Self::Mysql => "mysql",
            Self::Zk => "zk",
            Self::Etcd => "etcd",
        }
    }

    /// Whether the store is a database.
    pub(crate) const fn is_sql(self) -> bool {
        matches!(self, Self::Sqlite | Self::Postgres | Self::Mysql)
    }

    /// Whether the store can notify a waiter.
    pub(crate) const fn pushes(self) -> bool {
        matches!(self, Self::Redis | Self::Postgres | Self::Zk | Self::Etcd)
    }
}

/// The options of all servers of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    pub(crate) disk: Disk,
    pub(crate) members: Members,
}

/// Whether a server that writes waits for its disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Disk {
    Waited,
    NotWaited,
}

impl Disk {
    /// Returns the text for the report.
    const fn label(self) -> &'static str {
        match self {
            Self::Waited => "each commit waits for the disk",
            Self::NotWaited => "no commit waits for the disk",
        }
    }
}

/// The pause between ZooKeeper's removals of empty directories. Other stores have no such setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sweeps {
    /// The default.
    Seldom,
    /// Every [`SOON`], without a limit of their number.
    Soon,
}

/// A private server.
pub(crate) struct Server {
    pub(crate) store: Store,
    pub(crate) version: String,
    running: Running,
}

enum Running {
    Memory,
    Sqlite(TempDir),
    Redis(RedisServer, MultiplexedConnection),
    Sql(SqlServer, BareConnection),
    /// The server, with the number of its nodes before its first use.
    Zk(ZooKeeperServer, f64),
    Etcd(EtcdServers),
}

/// The counters of a server at one time.
#[derive(Debug)]
pub(crate) enum Look {
    Nothing,
    Redis(RedisCounters),
    Sql(f64),
    Zk(ZkCounters),
    Etcd(f64),
}

impl Server {
    /// Starts a server.
    pub(crate) async fn start(store: Store, setup: Setup, sweeps: Sweeps) -> Result<Self, Failure> {
        let disk = setup.disk;
        let waits = disk == Disk::Waited;
        let (running, version) = match store {
            Store::Memory => (Running::Memory, "in the process".to_owned()),
            Store::Sqlite => {
                let directory = tempfile::Builder::new().prefix("dlock-bench-").tempdir()?;
                (Running::Sqlite(directory), "SQLite, WAL, synchronous = NORMAL".to_owned())
            }
            Store::Redis => {
                let server = RedisServer::start(&RedisOptions::new()).await;
                let server = server.map_err(|stop| format!("no server: {stop:?}"))?;
                let mut control = baseline::connect(&server.url()).await?;
                let info: String = cmd("INFO").query_async(&mut control).await?;
                let version = redis_version(&info);
                (Running::Redis(server, control), version)
            }
            Store::Postgres | Store::Mysql => {
                let kind = if store == Store::Mysql { Kind::Mariadb } else { Kind::Postgres };
                let server = SqlServer::start(kind, waits).await?;
                let version = format!("{}, {}", server.version().await?, disk.label());
                let control = server.bare().await?;
                (Running::Sql(server, control), version)
            }
            Store::Zk => {
                let options = ZkOptions::new().with_fsync(waits).with_room(true);
                let options = match sweeps {
                    Sweeps::Seldom => options.with_container_checks_every(CHECKS),
                    Sweeps::Soon => options
                        .with_container_checks_every(SOON)
                        .with_property("znode.container.maxPerMinute", PER_MINUTE),
                };
                let server = ZooKeeperServer::start(&options).await;
                let server = server.map_err(|stop| format!("no server: {stop:?}"))?;
                let version = zk::version(&server).await?;
                let nodes = ZkCounters::look(&server).await?.nodes();
                (Running::Zk(server, nodes), format!("ZooKeeper {version}, {}", disk.label()))
            }
            Store::Etcd => {
                let servers = EtcdServers::start(setup.members, waits).await?;
                let version = format!("etcd {}, {}", servers.version(), disk.label());
                (Running::Etcd(servers), version)
            }
        };
        let server = Self { store, version, running };
        if store.is_sql() {
            // The tables are created once here, so that the processes do not create them
            // concurrently.
            dlock::connect(&server.dlock_url()).await?;
        }
        Ok(server)
    }

    /// Returns the address in the format of the drivers.
    pub(crate) fn url(&self) -> String {
        match &self.running {
            Running::Memory => "memory:".to_owned(),
            Running::Sqlite(directory) => {
                format!("sqlite:{}", directory.path().join("locks.db").display())
            }
            Running::Redis(server, _) => server.url(),
            Running::Sql(server, _) => server.plain_url(),
            Running::Zk(server, _) => format!("zk://{}", server.address()),
            Running::Etcd(servers) => servers.asked().url(),
        }
    }

    /// Returns the address in the format of [`dlock::connect`].
    pub(crate) fn dlock_url(&self) -> String {
        let options = if self.store.is_sql() { "?dlock.create_schema=true" } else { "" };
        format!("{}{options}", self.url())
    }

    /// Returns the address, such as `127.0.0.1:port`, if clients reach it over a network.
    pub(crate) fn address(&self) -> Option<String> {
        let url = self.url();
        let (_, rest) = url.split_once("://")?;
        let authority = rest.split(['/', '?']).next()?;
        authority.rsplit('@').next().map(ToOwned::to_owned)
    }

    /// Returns the id of the first process, if there is one.
    pub(crate) fn pid(&self) -> Option<u32> {
        match &self.running {
            Running::Memory | Running::Sqlite(_) => None,
            Running::Redis(server, _) => server.pid(),
            Running::Sql(server, _) => server.pid(),
            Running::Zk(server, _) => server.pid(),
            Running::Etcd(servers) => servers.asked().pid(),
        }
    }

    /// Returns the threads that get a processor.
    pub(crate) fn threads(&self) -> Vec<u32> {
        match &self.running {
            Running::Zk(..) | Running::Etcd(_) => {
                self.pid().map(processors::threads).unwrap_or_default()
            }
            _ => self.pid().into_iter().collect(),
        }
    }

    /// Waits until the next action of a client makes the server report all its counts. Returns
    /// whether such an action is needed.
    pub(crate) async fn settle(&self) -> bool {
        match &self.running {
            Running::Sql(_, control @ BareConnection::Postgres(_)) => {
                control.settle().await;
                true
            }
            _ => false,
        }
    }

    /// Returns the server's counters.
    pub(crate) async fn look(&mut self) -> Result<Look, Failure> {
        Ok(match &mut self.running {
            Running::Memory | Running::Sqlite(_) => Look::Nothing,
            Running::Redis(_, control) => Look::Redis(RedisCounters::look(control).await?),
            Running::Sql(_, control) => Look::Sql(control.statements().await?),
            Running::Zk(server, _) => Look::Zk(ZkCounters::look(server).await?),
            Running::Etcd(servers) => Look::Etcd(servers.requests().await?),
        })
    }

    /// Returns the number of keys, rows or nodes that free locks have left on the server; not a
    /// number if they can't be counted.
    pub(crate) async fn entries(&mut self) -> Result<f64, Failure> {
        Ok(match &mut self.running {
            Running::Memory => f64::NAN,
            Running::Redis(_, control) => {
                // The streams of tokens belong to no lock.
                let keys: Vec<String> = cmd("KEYS").arg("*").query_async(control).await?;
                let of_locks = keys.iter().filter(|key| !key.ends_with("}t")).count();
                f64::from(u32::try_from(of_locks).unwrap_or(u32::MAX))
            }
            Running::Sqlite(_) | Running::Sql(..) => self.table().await?.rows().await?,
            Running::Zk(server, nodes) => {
                // The parent of the locks' directories belongs to no lock.
                (ZkCounters::look(server).await?.nodes() - *nodes - 1.0).max(0.0)
            }
            Running::Etcd(servers) => servers.entries().await?,
        })
    }

    /// Returns their size in bytes with all other data, as the store counts it.
    pub(crate) async fn bytes(&mut self) -> Result<f64, Failure> {
        Ok(match &mut self.running {
            Running::Memory => f64::NAN,
            Running::Redis(_, control) => RedisCounters::look(control).await?.value("used_memory"),
            Running::Sqlite(_) | Running::Sql(..) => self.table().await?.bytes().await?,
            Running::Zk(server, _) => ZkCounters::look(server).await?.bytes(),
            Running::Etcd(servers) => servers.bytes().await?,
        })
    }

    /// Returns the table of the locks, if the store is a database.
    pub(crate) async fn table(&self) -> Result<Table, Failure> {
        match self.store.is_sql() {
            true => Table::connect(&self.url()).await,
            false => Err(format!("{} has no table", self.store.name()).into()),
        }
    }
}

impl Look {
    /// Returns the number of commands between two looks; for databases, of transactions of all
    /// kinds. Not a number if they can't be counted.
    pub(crate) fn until(self, after: Self) -> f64 {
        match (self, after) {
            (Self::Redis(before), Self::Redis(after)) => before.until(after).commands(),
            (Self::Zk(before), Self::Zk(after)) => before.until(after).commands(),
            (Self::Sql(before), Self::Sql(after)) | (Self::Etcd(before), Self::Etcd(after)) => {
                after - before
            }
            _ => f64::NAN,
        }
    }
}

/// Returns the product and its version. Valkey also reports the version of Redis that it is
/// compatible with.
fn redis_version(info: &str) -> String {
    let field = |name: &str| info.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    match field("valkey_version:") {
        Some(version) => format!("Valkey {version}"),
        None => format!("Redis {}", field("redis_version:").unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests {
    use super::redis_version;

    #[test]
    fn valkey_is_named_with_its_own_version() {
        let redis = "# Server\r\nredis_version:7.2.4\r\n";
        assert_eq!(redis_version(redis), "Redis 7.2.4");
        assert_eq!(redis_version(&format!("{redis}valkey_version:9.0.1\r\n")), "Valkey 9.0.1");
    }
}
