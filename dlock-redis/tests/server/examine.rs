//! The findings of `examine` about the settings of a server.

use dlock_core::{DynBackend, Finding, Level};
use dlock_testkit::found::{self, only};
use dlock_testlab::{
    Stop,
    redis::{Options, Persistence, RedisCluster, RedisMasters, RedisSentinel, RedisServer},
};

use crate::support::{connect, run, start, until};

/// The findings that are not fine.
async fn amiss(client: &DynBackend) -> Result<Vec<Finding>, Stop> {
    found::amiss(client, 4).await
}

async fn set(server: &RedisServer, setting: &str, value: &str) -> Result<(), Stop> {
    server.command(&["CONFIG", "SET", setting, value]).await?.ok()?;
    Ok(())
}

#[test]
fn a_server_that_persists_every_write_is_fine() {
    run(async {
        let options = Options::new().with_persistence(Persistence::AofAlways);
        let server = RedisServer::start(&options).await?;
        for url in [server.url(), format!("{}?dlock.plain=true", server.url())] {
            assert_eq!(amiss(&connect(&url).await?).await?, []);
        }
        Ok(())
    })
}

#[test]
fn each_bad_setting_is_reported_alone() {
    run(async {
        let options = Options::new().with_persistence(Persistence::AofAlways);
        let server = RedisServer::start(&options).await?;
        let client = connect(&server.url()).await?;
        for (setting, bad, good, about, level, remedy) in [
            ("appendfsync", "everysec", "always", "persistence", Level::Warning, "restart_guard"),
            ("timeout", "600", "0", "connections", Level::Warning, "SET timeout 0"),
            ("tcp-keepalive", "0", "300", "connections", Level::Warning, "SET tcp-keepalive"),
            (
                "maxmemory-policy",
                "allkeys-lru",
                "noeviction",
                "eviction",
                Level::Warning,
                "noeviction",
            ),
        ] {
            set(&server, setting, bad).await?;
            only(&amiss(&client).await?, about, level, remedy);
            set(&server, setting, good).await?;
        }
        for policy in ["allkeys-lru", "volatile-ttl"] {
            set(&server, "maxmemory", "100mb").await?;
            set(&server, "maxmemory-policy", policy).await?;
            let found = amiss(&client).await?;
            only(&found, "eviction", Level::Wrong, "CONFIG SET maxmemory-policy noeviction");
        }
        Ok(())
    })
}

#[test]
fn a_volatile_server_is_fine_with_a_restart_guard() {
    run(async {
        let (server, client) = start().await?;
        only(&amiss(&client).await?, "persistence", Level::Warning, "appendonly yes");
        let guarded = connect(&format!("{}?dlock.restart_guard=1s", server.url())).await?;
        assert_eq!(amiss(&guarded).await?, []);
        Ok(())
    })
}

#[test]
fn a_server_that_has_become_a_replica_is_wrong() {
    run(async {
        let options = Options::new().with_persistence(Persistence::AofAlways);
        let (server, master) =
            (RedisServer::start(&options).await?, RedisServer::start(&options).await?);
        let client = connect(&server.url()).await?;
        let port = master.port().to_string();
        server.command(&["REPLICAOF", "127.0.0.1", &port]).await?.ok()?;
        only(&amiss(&client).await?, "role", Level::Wrong, "redis+sentinel://");
        Ok(())
    })
}

#[test]
fn too_few_replicas_for_the_durability_are_wrong() {
    run(async {
        let options = Options::new().with_persistence(Persistence::AofAlways);
        let server = RedisServer::start(&options).await?;
        let client = connect(&format!("{}?dlock.durability=1", server.url())).await?;
        only(&amiss(&client).await?, "replication", Level::Wrong, "dlock.durability");
        let _replica = RedisServer::start(&options.clone().replica_of(&server.address())).await?;
        until("the replica follows", async || Ok(amiss(&client).await?.is_empty())).await
    })
}

#[test]
fn missing_rights_are_reported_as_warnings() {
    run(async {
        let (server, _) = start().await?;
        let line = include_str!("../../src/acl.txt").replace(" +info +scan", "");
        server.command(&line.split_whitespace().collect::<Vec<_>>()).await?.ok()?;
        let client = connect(&format!("redis://dlock:password@{}", server.address())).await?;
        let findings = amiss(&client).await?;
        let about: Vec<_> = findings.iter().map(|finding| finding.about).collect();
        assert_eq!(about, ["server", "rights", "connections"], "{findings:?}");
        for (finding, remedy) in findings.iter().zip(["+info", "+scan", "+config|get"]) {
            assert_eq!(finding.level, Level::Warning, "{finding:?}");
            assert!(finding.remedy.as_ref().is_some_and(|text| text.contains(remedy)));
        }
        Ok(())
    })
}

#[test]
fn a_cluster_sentinels_and_a_quorum_are_not_wrong() {
    run(async {
        let cluster = RedisCluster::start(&Options::new()).await?;
        let sentinel = RedisSentinel::start(&Options::new()).await?;
        let masters = RedisMasters::start(3, &Options::new()).await?;
        for (url, about) in
            [(cluster.url(), "cluster"), (sentinel.url(), "sentinels"), (masters.url(), "quorum")]
        {
            let findings = connect(&url).await?.examine().await?;
            assert!(findings.iter().all(|finding| finding.level < Level::Wrong), "{findings:?}");
            assert!(findings.iter().any(|finding| finding.about == about), "{findings:?}");
        }
        let quorum = connect(&masters.url()).await?;
        masters.servers()[0].kill();
        until("the loss of one is told", async || {
            let findings = quorum.examine().await?;
            let found = findings.iter().find(|finding| finding.about == "quorum");
            Ok(found.is_some_and(|finding| finding.level == Level::Warning))
        })
        .await
    })
}

#[test]
fn a_stopped_server_is_an_error() {
    run(async {
        let (server, client) = start().await?;
        server.kill();
        let error = client.examine().await.err().ok_or_else(|| Stop::failed("it answers"))?;
        assert_eq!(error.kind(), dlock_core::ErrorKind::Unavailable, "{error}");
        Ok(())
    })
}
