//! PostgreSQL, MySQL, ZooKeeper and etcd by URL, on servers.

use std::time::Duration;

use dlock::LockName;
use dlock_testlab::{
    Stop,
    etcd::{self, EtcdServer},
    mariadb::{self, MariadbServer},
    postgres::{self, PostgresServer},
    zookeeper::{self, ZooKeeperServer},
};

#[test]
fn locks_of_one_postgresql_meet_and_a_prefix_keeps_them_apart() {
    let tested = async {
        let server = PostgresServer::start(&postgres::Options::new()).await?;
        meet(&format!("{}?dlock.create_schema=true", server.url())).await
    };
    crate::run("postgres", tested);
}

#[test]
fn locks_of_one_mariadb_meet_and_a_prefix_keeps_them_apart() {
    let tested = async {
        let server = MariadbServer::start(&mariadb::Options::new()).await?;
        meet(&format!("{}?dlock.create_schema=true", server.url())).await
    };
    crate::run("mysql", tested);
}

#[test]
fn locks_of_one_zookeeper_meet_and_a_prefix_keeps_them_apart() {
    let tested = async {
        let server = ZooKeeperServer::start(&zookeeper::Options::new()).await?;
        meet(&format!("zk://{}?dlock.root=/locks", server.address())).await
    };
    crate::run("zk", tested);
}

#[test]
fn locks_of_one_etcd_meet_and_a_prefix_keeps_them_apart() {
    let tested = async {
        let server = EtcdServer::start(&etcd::Options::new()).await?;
        meet(&format!("{}?dlock.root=/locks", server.url())).await
    };
    crate::run("etcd", tested);
}

async fn meet(url: &str) -> Result<(), Stop> {
    let (one, two) = (dlock::connect(url).await?, dlock::connect(url).await?);
    let apart = dlock::connect(&format!("{url}&dlock.prefix=other/")).await?;
    let guard = one.mutex("n")?.lock().await?;
    assert!(two.mutex("n")?.try_lock().await?.is_none());
    assert!(apart.mutex("n")?.try_lock().await?.is_some());
    assert!(two.fair("other/n")?.lock_timeout(Duration::from_secs(20)).await.is_ok());
    let token = guard.token();
    guard.release().await?;
    let next = two.mutex(LockName::new("n")?)?.lock().await?;
    assert!(next.token() > token);
    next.release().await?;
    for locks in [one, two, apart] {
        locks.shutdown(Duration::from_secs(10)).await?;
    }
    Ok(())
}
