//! The subcommands on each server.

use std::io::Write;

use dlock_testlab::{
    Verdict,
    etcd::{self, EtcdServer},
    judge,
    mariadb::{self, MariadbServer},
    postgres::{self, PostgresServer},
    redis::{self, RedisServer},
    zookeeper::{self, ZooKeeperServer},
};
use serde_json::Value;

use crate::support::{Dlock, HOLD, went};

/// Acquires, inspects and breaks a lock, raises its tokens, and examines the store.
fn serves(url: String) -> Verdict {
    let dlock = Dlock::on(url);
    let token = || -> u64 {
        let out = dlock.out(&["run", "-n", "a/1", "--", "sh", "-c", "echo $DLOCK_TOKEN"]);
        out.trim().parse().unwrap()
    };
    let first = token();
    assert!(token() > first);
    let seen = first + (1 << 40);
    let raised = dlock.went(&["raise-tokens", "a/1", &seen.to_string()]);
    match raised.code {
        Some(0) => assert!(token() > seen),
        code => assert!(code == Some(125) && raised.err.contains("can't be raised"), "{raised:?}"),
    }

    let mut held = dlock.hold(&["--name", "a/1", "--lease", "10s"], HOLD);
    assert_eq!(dlock.went(&["run", "-n", "a/1", "-w", "0", "--", "true"]).code, Some(124));
    let seen = dlock.inspect("a/1");
    assert_eq!(seen["holders"].as_array().unwrap().len(), 1, "{seen}");
    assert!(seen["holders"][0]["note"].as_str().unwrap().ends_with(" sh"), "{seen}");
    held.stdin().write_all(b"on\n")?;
    assert_eq!(held.line(), "on");
    let broken = dlock.json(&["break", "a/1", "--yes", "--json"]);
    assert_eq!(broken["taken"][0]["claim"], seen["holders"][0]["claim"]);
    let went = held.ended();
    assert_eq!(went.code, Some(123), "{went:?}");
    assert_eq!(dlock.inspect("a/1")["free"], true);

    let went = dlock.went(&["doctor", "--json"]);
    let report: Value = serde_json::from_str(&went.out)?;
    assert_eq!(went.code, Some(0), "{report:#}");
    for about in ["connection", "tokens", "lock"] {
        let found = report["findings"].as_array().unwrap().iter().find(|f| f["about"] == about);
        assert_eq!(found.unwrap()["level"], "fine", "{report:#}");
    }
    assert_eq!(dlock.json(&["guarantees", "--json"])["guarantees"]["scope"]["value"], "network");
    Ok(())
}

/// Lists held locks, below a prefix of names and of the URL.
fn lists(url: &str) -> Verdict {
    let dlock = Dlock::on(url.to_owned());
    let held = ["a/1", "a/2", "b"].map(|name| dlock.hold(&["--name", name], HOLD));
    let names = |args: &[&str]| -> Vec<String> {
        let out = dlock.out(&[&["list", "--json"], args].concat());
        let name = |line| serde_json::from_str::<Value>(line).unwrap()["name"].clone();
        out.lines().map(|line| name(line).as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(&[]), ["a/1", "a/2", "b"]);
    assert_eq!(names(&["a/"]), ["a/1", "a/2"]);
    let below = format!("{url}{}dlock.prefix=a/", if url.contains('?') { '&' } else { '?' });
    assert_eq!(names(&["--url", &below]), ["1", "2"]);
    for one in held {
        assert_eq!(one.finish().code, Some(0));
    }
    assert!(names(&[]).is_empty());
    Ok(())
}

/// A session does not show which claim holds an advisory lock.
#[tokio::test(flavor = "multi_thread")]
async fn an_advisory_run_within_a_run_is_refused() {
    let tested = async {
        let server = PostgresServer::start(&postgres::Options::new()).await?;
        let url = format!("{}?dlock.create_schema=true&dlock.advisory=true", server.url());
        let dlock = Dlock::on(url.clone());
        for (name, options) in
            [("q", ""), ("p/q", "&dlock.prefix=p/"), ("q", "&dlock.token_offset=1000")]
        {
            let inner = format!("\"$DLOCK\" run -n q -w 0 --url '{url}{options}' -- echo ran");
            let mut outer = dlock.command(&["run", "-n", name, "--", "sh", "-c", &inner]);
            let went = went(outer.env("DLOCK", env!("CARGO_BIN_EXE_dlock")));
            assert_eq!(went.code, Some(125), "{options}: {went:?}");
            assert!(went.err.contains("already runs under lock \"q\""), "{options}: {went:?}");
        }
        Ok(())
    };
    judge("postgres", tested.await);
}

macro_rules! on {
    ($store:literal, $serves:ident, $lists:ident, |$server:ident| $url:expr, $start:expr) => {
        #[tokio::test(flavor = "multi_thread")]
        async fn $serves() {
            let tested = async {
                let $server = $start.await?;
                serves($url)
            };
            judge($store, tested.await);
        }

        #[tokio::test(flavor = "multi_thread")]
        async fn $lists() {
            let tested = async {
                let $server = $start.await?;
                lists(&$url)
            };
            judge($store, tested.await);
        }
    };
}

on!(
    "redis",
    redis_is_served,
    redis_is_listed,
    |server| server.url(),
    RedisServer::start(&redis::Options::new())
);
on!(
    "postgres",
    postgresql_is_served,
    postgresql_is_listed,
    |server| format!("{}?dlock.create_schema=true", server.url()),
    PostgresServer::start(&postgres::Options::new())
);
on!(
    "mysql",
    mariadb_is_served,
    mariadb_is_listed,
    |server| format!("{}?dlock.create_schema=true", server.url()),
    MariadbServer::start(&mariadb::Options::new())
);
on!(
    "zk",
    zookeeper_is_served,
    zookeeper_is_listed,
    |server| format!("zk://{}", server.address()),
    ZooKeeperServer::start(&zookeeper::Options::new())
);
on!(
    "etcd",
    etcd_is_served,
    etcd_is_listed,
    |server| server.url(),
    EtcdServer::start(&etcd::Options::new())
);
