//! The stores, and a private server of each.

use dlock_testlab::{
    redis::{Options as RedisOptions, RedisServer},
    zookeeper::{Options as ZkOptions, ZooKeeperServer},
};
use redis::aio::MultiplexedConnection;
use serde::Serialize;
use tempfile::TempDir;

use super::options::Disk;
use crate::{
    Failure,
    bench::Store as _,
    processors,
    redis::{counters::Counters as RedisCounters, floor},
    sql::{Kind, bare::Bare, server::SqlServer},
    zk::{
        CHECKS,
        counters::{self, Counters as ZkCounters},
    },
};

/// A store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Store {
    Memory,
    Sqlite,
    Redis,
    Postgres,
    Mysql,
    Zk,
}

impl Store {
    pub(crate) const ALL: [Self; 6] =
        [Self::Memory, Self::Sqlite, Self::Redis, Self::Postgres, Self::Mysql, Self::Zk];

    /// As it is called on the command line.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Sqlite => "sqlite",
            Self::Redis => "redis",
            Self::Postgres => "postgres",
            Self::Mysql => "mysql",
            Self::Zk => "zk",
        }
    }

    /// Whether it is a database.
    pub(crate) const fn is_sql(self) -> bool {
        matches!(self, Self::Sqlite | Self::Postgres | Self::Mysql)
    }

    /// Whether it can send a message to who waits.
    pub(crate) const fn pushes(self) -> bool {
        matches!(self, Self::Redis | Self::Postgres | Self::Zk)
    }
}

/// A server that is used for nothing else.
pub(crate) struct Server {
    pub(crate) store: Store,
    pub(crate) version: String,
    running: Running,
}

enum Running {
    Memory,
    Sqlite(TempDir),
    Redis(RedisServer, MultiplexedConnection),
    Sql(SqlServer, Bare),
    Zk(ZooKeeperServer),
}

/// What a server has counted up to some time.
#[derive(Debug)]
pub(crate) enum Look {
    Nothing,
    Redis(RedisCounters),
    Sql(f64),
    Zk(ZkCounters),
}

impl Server {
    /// Starts one.
    pub(crate) async fn start(store: Store, disk: Disk) -> Result<Self, Failure> {
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
                let mut control = floor::connect(&server.url()).await?;
                let info: String = redis::cmd("INFO").query_async(&mut control).await?;
                let version = info.lines().find_map(|line| line.strip_prefix("redis_version:"));
                let version = format!("Redis {}", version.unwrap_or_default().trim());
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
                let options = options.with_container_checks_every(CHECKS);
                let server = ZooKeeperServer::start(&options).await;
                let server = server.map_err(|stop| format!("no server: {stop:?}"))?;
                let version = counters::version(&server).await?;
                (Running::Zk(server), format!("ZooKeeper {version}, {}", disk.label()))
            }
        };
        let server = Self { store, version, running };
        if store.is_sql() {
            // Its tables are made once, rather than by all at one time.
            dlock::connect(&server.dlock_url()).await?;
        }
        Ok(server)
    }

    /// Its address, as drivers take it.
    pub(crate) fn url(&self) -> String {
        match &self.running {
            Running::Memory => "memory:".to_owned(),
            Running::Sqlite(directory) => {
                format!("sqlite:{}", directory.path().join("locks.db").display())
            }
            Running::Redis(server, _) => server.url(),
            Running::Sql(server, _) => server.plain_url(),
            Running::Zk(server) => server.url(),
        }
    }

    /// Its address, as [`dlock::connect`] takes it.
    pub(crate) fn dlock_url(&self) -> String {
        let options = if self.store.is_sql() { "?dlock.create_schema=true" } else { "" };
        format!("{}{options}", self.url())
    }

    /// Its first process, if it has one.
    pub(crate) fn pid(&self) -> Option<u32> {
        match &self.running {
            Running::Memory | Running::Sqlite(_) => None,
            Running::Redis(server, _) => server.pid(),
            Running::Sql(server, _) => server.pid(),
            Running::Zk(server) => server.pid(),
        }
    }

    /// The threads that a processor is chosen for.
    pub(crate) fn threads(&self) -> Vec<u32> {
        match &self.running {
            Running::Zk(server) => server.pid().map(processors::threads).unwrap_or_default(),
            _ => self.pid().into_iter().collect(),
        }
    }

    /// Waits until whatever its clients do next makes them tell what they have counted; whether
    /// they have to be made to.
    pub(crate) async fn settle(&self) -> bool {
        match &self.running {
            Running::Sql(_, control @ Bare::Postgres(_)) => {
                control.settle().await;
                true
            }
            _ => false,
        }
    }

    /// What it has counted.
    pub(crate) async fn look(&mut self) -> Result<Look, Failure> {
        Ok(match &mut self.running {
            Running::Memory | Running::Sqlite(_) => Look::Nothing,
            Running::Redis(_, control) => Look::Redis(RedisCounters::look(control).await?),
            Running::Sql(_, control) => Look::Sql(control.statements().await?),
            Running::Zk(server) => Look::Zk(ZkCounters::look(server).await?),
        })
    }
}

impl Look {
    /// How many commands there were until another look; for databases, transactions of all kinds.
    /// Not a number where nobody counts.
    pub(crate) fn until(self, after: Self) -> f64 {
        match (self, after) {
            (Self::Redis(before), Self::Redis(after)) => before.until(after).commands(),
            (Self::Zk(before), Self::Zk(after)) => before.until(after).commands(),
            (Self::Sql(before), Self::Sql(after)) => after - before,
            _ => f64::NAN,
        }
    }
}
