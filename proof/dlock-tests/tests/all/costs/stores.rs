//! Two clients of each store, which all that they do is counted of.

use dlock_testlab::{
    Protocol, Proxy, Verdict,
    etcd::{self, EtcdServer},
    mariadb::{self, MariadbServer},
    postgres::{self, PostgresServer},
    redis::{self, RedisServer},
    zookeeper::{self, ZooKeeperServer},
};

use super::{
    client::{Client, Meter},
    cost::Tally,
    document,
    log::Log,
    operations,
};

/// How often everything is done.
const TIMES: usize = 7;

/// An answer may take long on a busy machine, and is not to be asked for again.
const PATIENT: &str = "dlock.response_timeout=30s";

#[test]
fn redis_costs_what_is_written() {
    let counted = async {
        let server = RedisServer::start(&redis::Options::new()).await?;
        let link = async || {
            let proxy = Proxy::start_for(&server.address(), Protocol::Redis).await?;
            let url = format!("redis://{}?{PATIENT}", proxy.address());
            Client::connect(&url, Meter::Wire(proxy)).await
        };
        count("Redis", &link().await?, &link().await?).await
    };
    crate::run("redis", counted);
}

#[test]
fn postgresql_costs_what_is_written() {
    let counted = async {
        let server = PostgresServer::start(&postgres::Options::new()).await?;
        let link = async || {
            let proxy = Proxy::start_for(&server.address(), Protocol::Postgres).await?;
            let url = server.url().replace(&server.address(), &proxy.address());
            let url = format!("{url}?dlock.create_schema=true&{PATIENT}");
            Client::connect(&url, Meter::Wire(proxy)).await
        };
        count("PostgreSQL", &link().await?, &link().await?).await
    };
    crate::run("postgres", counted);
}

#[test]
fn mysql_costs_what_is_written() {
    let counted = async {
        let server = MariadbServer::start(&mariadb::Options::new()).await?;
        let link = async || {
            let proxy = Proxy::start(&server.address()).await?;
            let url = server.url().replace(&server.address(), &proxy.address());
            let url = format!("{url}?dlock.create_schema=true&{PATIENT}");
            Client::connect(&url, Meter::Wire(proxy)).await
        };
        count("MySQL and MariaDB", &link().await?, &link().await?).await
    };
    crate::run("mysql", counted);
}

#[test]
fn zookeeper_costs_what_is_written() {
    let counted = async {
        let server = ZooKeeperServer::start(&zookeeper::Options::new()).await?;
        let link = async || {
            let proxy = Proxy::start_for(&server.address(), Protocol::ZooKeeper).await?;
            let url = format!("zk://{}", proxy.address());
            Client::connect(&url, Meter::Wire(proxy)).await
        };
        count("ZooKeeper", &link().await?, &link().await?).await
    };
    crate::run("zk", counted);
}

#[test]
fn etcd_costs_what_is_written() {
    let counted = async {
        let server = EtcdServer::start(&etcd::Options::new()).await?;
        let link = async || {
            let proxy = Proxy::start_for(&server.address(), Protocol::Etcd).await?;
            // A heartbeat is due seldom enough not to be in most of the counts.
            let url = format!("etcd://{}?dlock.session_timeout=5m", proxy.address());
            Client::connect(&url, Meter::Wire(proxy)).await
        };
        count("etcd", &link().await?, &link().await?).await
    };
    crate::run("etcd", counted);
}

#[test]
fn sqlite_costs_what_is_written() {
    let counted = async {
        let directory = tempfile::tempdir()?;
        let file = directory.path().join("locks.db");
        let url = format!("sqlite:{}?dlock.create_schema=true", file.display());
        let link = async || {
            let log = Log(file.with_extension("db-wal"));
            Client::connect(&url, Meter::Log(log)).await
        };
        count("SQLite", &link().await?, &link().await?).await
    };
    crate::run("sqlite", counted);
}

/// Has these do everything, and compares what it has cost with what is written below a heading.
async fn count(heading: &str, one: &Client, other: &Client) -> Verdict {
    // What is done for the first time makes connections, and prepares statements.
    operations::all(one, other, &mut Tally::default()).await?;
    let mut tally = Tally::default();
    for _ in 0..TIMES {
        operations::all(one, other, &mut tally).await?;
    }
    for client in [one, other] {
        client.locks.shutdown(std::time::Duration::from_secs(10)).await?;
    }
    document::compare(heading, &tally.usual())
}
