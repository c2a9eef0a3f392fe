//! The requirements on a server: connecting to an unsuitable one fails with a remedy, and `examine`
//! finds unsuitable settings.

use std::time::Duration;

use dlock_core::{ConfigIssue, DynBackend, ErrorKind, Finding, Level};
use dlock_redis::{Durability, Redis, RedisConfig};
use dlock_testkit::{
    Heard,
    found::{self, only},
};
use dlock_testlab::{
    Stop, Verdict,
    redis::{Options, Persistence, RedisCluster, RedisMasters, RedisSentinel, RedisServer},
};
use tokio::{net::TcpListener, time::timeout};

use crate::support::{HELLO, SOON, answer, connect, refused, run, says, start, until, works};

const URL: ErrorKind = ErrorKind::Config(ConfigIssue::Url);
const ACCESS: ErrorKind = ErrorKind::Config(ConfigIssue::Access);

/// A server that answers `HELLO` and `INFO` with these texts, and all other commands with `OK`.
async fn pretend(listener: &TcpListener, hello: &str, info: &str) -> Verdict {
    loop {
        let (stream, _) = listener.accept().await?;
        // A client that disconnects gets no more answers.
        let _ = answer(stream, |words| match words[0].as_str() {
            "HELLO" => hello.to_owned(),
            "INFO" => format!("${}\r\n{info}\r\n", info.len()),
            _ => "+OK\r\n".to_owned(),
        })
        .await;
    }
}

/// Returns the error of a connect to such a server.
async fn with_pretender(scheme: &str, hello: &str, info: &str) -> Result<dlock_core::Error, Stop> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("{scheme}://{}", listener.local_addr()?);
    tokio::select! {
        error = refused(&url) => error,
        ended = pretend(&listener, hello, info) => Err(Stop::failed(format!("{ended:?}"))),
    }
}

#[test]
fn an_old_server_is_refused_with_both_versions() {
    run(async {
        for version in ["2.8.24", "5.0.14", "6.2.19"] {
            let info = format!("redis_version:{version}\r\nrole:master\r\n");
            for scheme in ["redis", "redis+cluster"] {
                let error = with_pretender(scheme, HELLO, &info).await?;
                says(&error, ErrorKind::Unsupported, "7.0 is needed");
                assert!(error.to_string().contains(&version[..3]), "{error}");
            }
        }
        Ok(())
    })
}

#[test]
fn a_server_that_speaks_another_protocol_is_refused() {
    run(async {
        for hello in [
            "-ERR unknown command `HELLO`, with args beginning with: `3`, \r\n",
            "-NOPROTO sorry\r\n",
        ] {
            says(&with_pretender("redis", hello, "").await?, ACCESS, "RESP3");
        }
        let error = with_pretender("redis", "HTTP/1.1 400 Bad Request\r\n\r\n", "").await?;
        says(&error, ErrorKind::Protocol, "check the address");
        assert!(!error.to_string().contains('\n'), "{error}");
        Ok(())
    })
}

#[test]
fn connecting_to_a_silent_server_ends_in_time() {
    run(async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("redis://{}?dlock.response_timeout=200ms", listener.local_addr()?);
        let error = timeout(SOON, refused(&url)).await??;
        says(&error, ErrorKind::Unavailable, "dlock.response_timeout");
        assert!(error.is_transient());
        Ok(())
    })
}

#[test]
fn a_missing_server_is_unavailable() {
    run(async {
        let gone = TcpListener::bind("127.0.0.1:0").await?.local_addr()?;
        for url in [
            format!("redis://{gone}"),
            format!("redis+cluster://{gone}"),
            format!("redis+sentinel://{gone}/mymaster"),
            format!("redis+quorum://{gone},127.0.0.1:1,127.0.0.1:2"),
            "redis+unix:///nowhere/redis.sock".to_owned(),
            "redis://no.such.host.invalid".to_owned(),
        ] {
            let error = refused(&url).await?;
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{url}: {error}");
            assert_eq!(error.operation(), Some("connect"), "{error}");
        }
        Ok(())
    })
}

/// A node of a cluster that has no slots yet.
async fn node() -> Result<RedisServer, Stop> {
    let bus = TcpListener::bind("127.0.0.1:0").await?.local_addr()?.port();
    let options = Options::new().with_config("cluster-enabled yes");
    RedisServer::start(&options.with_config(&format!("cluster-port {bus}"))).await
}

#[test]
fn a_node_of_a_cluster_names_the_scheme_for_clusters() {
    run(async {
        let node = node().await?;
        for option in ["", "?dlock.plain=true"] {
            let error = refused(&format!("{}{option}", node.url())).await?;
            says(&error, URL, "redis+cluster:// instead of redis://");
        }
        let error = refused(&node.url().replace("redis:", "redis+cluster:")).await?;
        says(&error, ErrorKind::Unavailable, "CLUSTER INFO");
        Ok(())
    })
}

#[test]
fn a_majority_in_a_cluster_without_replicas_is_refused() {
    run(async {
        let node = node().await?;
        node.command(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]).await?.ok()?;
        let url = node.url().replace("redis:", "redis+cluster:");
        until("it serves its slots", async || Ok(connect(&url).await.is_ok())).await?;
        let error = refused(&format!("{url}?dlock.durability=majority")).await?;
        says(&error, ErrorKind::Unavailable, "set a number, such as dlock.durability=1");
        Ok(())
    })
}

#[test]
fn a_single_server_names_the_scheme_for_single_servers() {
    run(async {
        let (server, _) = start().await?;
        let error = refused(&server.url().replace("redis:", "redis+cluster:")).await?;
        says(&error, URL, "redis:// instead of redis+cluster://");
        let url = format!("{}/mymaster", server.url().replace("redis:", "redis+sentinel:"));
        says(&refused(&url).await?, URL, "not a sentinel");
        let error = refused(&format!("{}/99", server.url())).await?;
        says(&error, URL, "no database with the number");
        Ok(())
    })
}

#[test]
fn sentinels_are_detected_and_use_names_and_passwords() {
    run(async {
        let (heard, _guard) = Heard::listen();
        let group = RedisSentinel::start(&Options::new()).await?;
        let sentinel = &group.sentinels()[0];
        let error = refused(&format!("redis://{sentinel}")).await?;
        says(&error, URL, "redis+sentinel://host/master");
        let error = refused(&group.url().replace("mymaster", "theirs")).await?;
        says(&error, ErrorKind::Unavailable, "SENTINEL MASTERS");
        assert!(error.to_string().contains("\"theirs\""), "{error}");

        for server in group.sentinel_servers() {
            let user = ["ACL", "SETUSER", "joe", "on", ">p@ss&=", "+@all"];
            server.command(&user).await?.ok()?;
            // Connected clients stay connected.
            server.command(&["ACL", "SETUSER", "default", "resetpass", ">secret%"]).await?.ok()?;
        }
        let with = |options: &str| format!("{}?{options}", group.url());
        says(&refused(&group.url()).await?, ACCESS, "password");
        says(&refused(&with("dlock.sentinel_password=wrong")).await?, ACCESS, "password");
        works(&connect(&with("dlock.sentinel_password=secret%25")).await?, "a").await?;
        let joe = with("dlock.sentinel_user=joe&dlock.sentinel_password=p%40ss%26%3D");
        works(&connect(&joe).await?, "a").await?;
        let text = heard.text();
        assert!(!["secret", "p@ss", "wrong"].iter().any(|secret| text.contains(secret)), "{text}");
        Ok(())
    })
}

#[test]
fn a_server_that_may_evict_locks_causes_a_warning() {
    run(async {
        for (policy, warned) in
            [("noeviction", false), ("allkeys-lru", true), ("volatile-ttl", true)]
        {
            let line = format!("maxmemory-policy {policy}");
            let server = RedisServer::start(&Options::new().with_config(&line)).await?;
            let (heard, _guard) = Heard::listen();
            works(&connect(&server.url()).await?, "a").await?;
            let text = heard.text();
            let warning = text.lines().find(|line| line.starts_with("WARN"));
            assert_eq!(warning.is_some(), warned, "{policy}: {text}");
            if let Some(warning) = warning {
                assert!(warning.contains(policy) && warning.contains("noeviction"), "{warning}");
                assert!(warning.contains(&server.url()), "{warning}");
            }
        }
        Ok(())
    })
}

#[test]
fn settings_from_code_are_checked_like_those_of_a_url() {
    run(async {
        let (server, _) = start().await?;
        let config = || RedisConfig::from_url(&server.url());
        let quorum = RedisConfig::from_url("redis+quorum://a,b,c")?;
        for config in [
            config()?.with_response_timeout(Duration::ZERO),
            config()?.with_restart_guard(Duration::MAX),
            config()?.with_plain(true).with_durability(Durability::Majority),
            quorum.clone().with_plain(true),
            quorum.with_durability(Durability::Majority),
        ] {
            let text = format!("{config:?}");
            let error = Redis::connect(config).await.err().ok_or(text)?;
            says(&error, ErrorKind::Config(ConfigIssue::OptionValue), "dlock.");
        }
        Ok(())
    })
}

#[test]
fn the_error_of_a_foreign_port_asks_whether_it_is_redis() {
    run(async {
        for (scheme, closes) in [("redis", true), ("redis", false), ("redis+cluster", true)] {
            let listener = TcpListener::bind("127.0.0.1:0").await?;
            let url = format!("{scheme}://{}?dlock.response_timeout=200ms", listener.local_addr()?);
            let listens = async {
                let mut kept = Vec::new();
                loop {
                    let accepted = listener.accept().await;
                    kept.extend(accepted.ok().filter(|_| !closes));
                }
            };
            let error = tokio::select! {
                error = refused(&url) => error?,
                () = listens => unreachable!(),
            };
            says(&error, ErrorKind::Unavailable, "Redis or Valkey");
            let first = if closes { "maxclients" } else { "no answer from the server in time" };
            says(&error, ErrorKind::Unavailable, first);
        }
        Ok(())
    })
}

#[test]
fn a_renamed_command_is_named() {
    run(async {
        for command in ["EVAL", "EVALSHA"] {
            let line = format!("rename-command {command} hidden");
            let server = RedisServer::start(&Options::new().with_config(&line)).await?;
            let error = refused(&server.url()).await?;
            says(&error, ErrorKind::Unsupported, "rename-command");
            assert!(error.to_string().contains(command), "{error}");
        }
        Ok(())
    })
}

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
fn one_server_has_one_vote_in_a_quorum() {
    run(async {
        let masters = RedisMasters::start(2, &Options::new()).await?;
        let [one, other] = masters.servers() else { return Err(Stop::failed("two masters")) };
        let port = one.address().rsplit_once(':').map(|(_, port)| port.to_owned());
        let alias = format!("localhost:{}", port.unwrap_or_default());
        let url = format!("redis+quorum://{},{alias},{}", one.address(), other.address());
        says(&refused(&url).await?, URL, "are one server");
        Ok(())
    })
}

#[test]
fn sentinels_that_cannot_fail_over_are_wrong() {
    run(async {
        let group = RedisSentinel::start(&Options::new()).await?;
        let client = connect(&group.url()).await?;
        let wrong = async |text: &str| {
            let findings = client.examine().await?;
            let is = |found: &Finding| found.level == Level::Wrong && found.found.contains(text);
            Ok::<_, Stop>(findings.iter().any(is))
        };
        for server in group.servers() {
            server.command(&["CONFIG", "SET", "replica-priority", "0"]).await?;
        }
        until("no replica may become the master", async || wrong("none of 2 replicas").await)
            .await?;
        for sentinel in &group.sentinel_servers()[1..] {
            sentinel.kill();
        }
        until("too few sentinels", async || wrong("no failover is possible now (").await).await
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
