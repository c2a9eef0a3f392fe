//! GUARANTEES.md agrees with the code.

use std::collections::BTreeMap;

use dlock::guarantees::Guarantees;
use dlock_testlab::{
    etcd::{self, EtcdServer},
    mariadb::{self, MariadbServer},
    postgres::{self, PostgresServer},
    redis::{Options, Persistence, RedisMasters, RedisServer},
    zookeeper::{self, Ensemble, ZooKeeperServer},
};

async fn given(url: &str) -> Guarantees {
    dlock::connect(url).await.expect("the store opens").guarantees()
}

/// The columns of the tables, each a list of its cells.
fn columns(text: &str) -> BTreeMap<String, Vec<String>> {
    let mut columns = BTreeMap::new();
    let mut lines = text.lines();
    while let Some(head) = lines.find(|line| line.starts_with("| guarantee |")) {
        let rows = lines.by_ref().skip(1).take_while(|line| line.starts_with('|'));
        let rows: Vec<Vec<String>> = rows.map(cells).collect();
        for (at, name) in cells(head).into_iter().enumerate() {
            columns.insert(name, rows.iter().map(|row| row[at].clone()).collect());
        }
    }
    columns
}

fn cells(line: &str) -> Vec<String> {
    line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect()
}

/// Compares the columns of the stores that are available here.
async fn compare(stores: &[(&str, Guarantees)]) {
    let written = columns(include_str!("../../../../GUARANTEES.md"));
    for (name, given) in stores {
        let rows = given.rows();
        let names: Vec<&str> = rows.iter().map(|(what, ..)| *what).collect();
        assert_eq!(written["guarantee"], names, "the rows of GUARANTEES.md");
        let texts: Vec<&str> = rows.iter().map(|(_, _, text)| text.as_str()).collect();
        assert_eq!(written[*name], texts, "the column {name} of GUARANTEES.md");
    }
}

#[tokio::test]
async fn the_guarantees_table_is_true_of_stores_without_a_server() {
    let directory = tempfile::tempdir().unwrap();
    let sqlite =
        format!("sqlite:{}?dlock.create_schema=true", directory.path().join("x.db").display());
    compare(&[("memory", given("memory:").await), ("SQLite", given(&sqlite).await)]).await;
}

#[test]
fn the_table_in_guarantees_md_is_true_of_redis() {
    let compared = async {
        let options = Options::new();
        let server = RedisServer::start(&options).await?;
        let durable = options.clone().with_persistence(Persistence::AofAlways);
        let durable = RedisServer::start(&durable).await?;
        let masters = RedisMasters::start(3, &options).await?;
        let plain = format!("{}?dlock.plain=true", server.url());
        let guarded = format!("{}?dlock.restart_guard=1s", server.url());
        compare(&[
            ("Redis", given(&server.url()).await),
            ("Redis, all on disk", given(&durable.url()).await),
            ("Redis, all on disk", given(&guarded).await),
            ("Redis quorum", given(&masters.url()).await),
            ("Redis, plain", given(&plain).await),
        ])
        .await;
        Ok(())
    };
    crate::run("redis", compared);
}

#[test]
fn the_tables_in_guarantees_md_are_true_of_postgresql() {
    let compared = async {
        let server = PostgresServer::start(&postgres::Options::new().with_fsync(true)).await?;
        let with = async |options: &str| {
            given(&format!("{}?dlock.create_schema=true{options}", server.url())).await
        };
        compare(&[
            ("PostgreSQL", with("").await),
            ("PostgreSQL, relaxed", with("&dlock.durability=relaxed").await),
            ("PostgreSQL, pooler", with("&dlock.pooler=true").await),
            ("PostgreSQL, advisory", with("&dlock.advisory=true").await),
            ("SQL, plain row", with("&dlock.plain=row").await),
            ("SQL, plain version", with("&dlock.plain=version").await),
        ])
        .await;
        Ok(())
    };
    crate::run("postgres", compared);
}

#[test]
fn the_tables_in_guarantees_md_are_true_of_mysql() {
    let compared = async {
        let server = MariadbServer::start(&mariadb::Options::new().with_fsync(true)).await?;
        let with = async |options: &str| {
            given(&format!("{}?dlock.create_schema=true{options}", server.url())).await
        };
        compare(&[
            ("MySQL", with("").await),
            ("SQL, plain row", with("&dlock.plain=row").await),
            ("SQL, plain version", with("&dlock.plain=version").await),
        ])
        .await;
        Ok(())
    };
    crate::run("mysql", compared);
}

#[test]
fn the_tables_in_guarantees_md_are_true_of_zookeeper() {
    let compared = async {
        let options = zookeeper::Options::new();
        let alone = ZooKeeperServer::start(&options).await?;
        let three = Ensemble::start(&options).await?;
        compare(&[
            ("ZooKeeper", given(&format!("zk://{}", three.connect_string())).await),
            ("ZooKeeper, one server", given(&format!("zk://{}", alone.address())).await),
        ])
        .await;
        Ok(())
    };
    crate::run("zk", compared);
}

#[test]
fn the_tables_in_guarantees_md_are_true_of_etcd() {
    let compared = async {
        let options = etcd::Options::new();
        let alone = EtcdServer::start(&options).await?;
        let three = etcd::Ensemble::start(&options).await?;
        compare(&[
            ("etcd", given(&three.url()).await),
            ("etcd, one member", given(&alone.url()).await),
        ])
        .await;
        Ok(())
    };
    crate::run("etcd", compared);
}
