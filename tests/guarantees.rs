//! GUARANTEES.md says what the code says.

#![cfg(all(feature = "sqlite", feature = "redis"))]

use std::collections::BTreeMap;

use dlock::Guarantees;
use dlock_testkit::{
    Outcome, Stop,
    servers::redis::{Options, Persistence, RedisMasters, RedisServer},
};

async fn given(url: &str) -> Guarantees {
    dlock::connect(url).await.expect("the store opens").guarantees()
}

/// The columns of the table, each a list of its cells.
fn columns(text: &str) -> BTreeMap<String, Vec<String>> {
    let rows: Vec<Vec<String>> = text
        .lines()
        .skip_while(|line| !line.starts_with("| guarantee |"))
        .take_while(|line| line.starts_with('|'))
        .map(|line| line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect())
        .collect();
    let (head, rows) = rows.split_first().expect("there is a table");
    let cells = |at: usize| rows[1..].iter().map(|row| row[at].clone()).collect();
    head.iter().enumerate().map(|(at, name)| (name.clone(), cells(at))).collect()
}

/// Compares the columns of the stores that can be had here.
async fn compare(stores: &[(&str, Guarantees)]) {
    let written = columns(include_str!("../GUARANTEES.md"));
    for (name, given) in stores {
        let rows = given.rows();
        let names: Vec<&str> = rows.iter().map(|(what, ..)| *what).collect();
        assert_eq!(written["guarantee"], names, "the rows of GUARANTEES.md");
        let texts: Vec<&str> = rows.iter().map(|(_, _, text)| text.as_str()).collect();
        assert_eq!(written[*name], texts, "the column {name} of GUARANTEES.md");
    }
}

#[tokio::test]
async fn the_table_in_guarantees_md_is_true_of_stores_without_a_server() {
    let directory = tempfile::tempdir().unwrap();
    let sqlite =
        format!("sqlite:{}?dlock.create_schema=true", directory.path().join("x.db").display());
    compare(&[("memory", given("memory:").await), ("SQLite", given(&sqlite).await)]).await;
}

#[tokio::test]
async fn the_table_in_guarantees_md_is_true_of_redis() {
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
        Ok::<_, Stop>(())
    };
    let required = std::env::var("DLOCK_TEST_REQUIRE").unwrap_or_default();
    match Outcome::from(compared.await) {
        Outcome::Passed => {}
        Outcome::Ignored { reason, .. } if !required.contains("redis") => {
            println!("ignored: {reason}");
        }
        outcome => panic!("{outcome:?}"),
    }
}
