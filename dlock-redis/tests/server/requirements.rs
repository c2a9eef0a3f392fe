//! The requirements on a server: connecting to an unsuitable one fails with a remedy.

use std::time::Duration;

use dlock_core::{ConfigIssue, ErrorKind};
use dlock_redis::{Durability, Redis, RedisConfig};
use dlock_testkit::Heard;
use dlock_testlab::{
    Stop, Verdict,
    redis::{Options, RedisSentinel, RedisServer},
};
use tokio::{net::TcpListener, time::timeout};

use crate::support::{HELLO, SOON, answer, connect, refused, run, says, start, works};

const URL: ErrorKind = ErrorKind::Config(ConfigIssue::Url);
const ACCESS: ErrorKind = ErrorKind::Config(ConfigIssue::Access);

/// A server that answers `HELLO` and `INFO` with these, and everything else with `OK`.
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

/// What becomes of a connect to such a server.
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
            // Those that are connected stay.
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
            config()?.with_retention(Duration::ZERO),
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
