//! The guarantee of exclusion depends on the current value of each setting behind it.

use std::time::Duration;

use dlock_core::{DynBackend, Exclusion, Level};
use dlock_testlab::{
    Stop, Verdict,
    redis::{Options, Persistence, RedisMasters, RedisServer},
};

use crate::support::{connect, run, until};

/// A server that has every write on disk before it answers.
async fn durable() -> Result<RedisServer, Stop> {
    RedisServer::start(&Options::new().with_persistence(Persistence::AofAlways)).await
}

async fn set(server: &RedisServer, setting: &str, value: &str) -> Verdict {
    server.command(&["CONFIG", "SET", setting, value]).await?.ok().map(|_| ())
}

fn exclusion(client: &DynBackend) -> Exclusion {
    client.guarantees().exclusion
}

#[test]
fn no_appendfsync_on_rewrite_guarantees_nothing() {
    run(async {
        let server = durable().await?;
        let url = server.url();
        assert_eq!(exclusion(&connect(&url).await?), Exclusion::Restart);
        set(&server, "no-appendfsync-on-rewrite", "yes").await?;
        let client = connect(&url).await?;
        assert_eq!(exclusion(&client), Exclusion::Nothing);
        let finding = |findings: Vec<dlock_core::Finding>| {
            let found = findings.into_iter().find(|finding| finding.about == "persistence");
            found.ok_or("nothing is said of it")
        };
        let found = finding(client.examine().await?)?;
        assert_eq!(found.level, Level::Warning, "{found:?}");
        assert!(found.found.contains("no-appendfsync-on-rewrite"), "{found:?}");
        let guarded = connect(&format!("{url}?dlock.restart_guard=1h")).await?;
        assert_eq!(exclusion(&guarded), Exclusion::Restart);
        assert!(finding(guarded.examine().await?)?.found.contains("restart_guard"));
        Ok(())
    })
}

#[test]
fn a_guarantee_follows_changed_settings() {
    run(async {
        let mut watched = Vec::new();
        for (setting, bad, good) in [
            ("no-appendfsync-on-rewrite", "yes", "no"),
            ("appendfsync", "everysec", "always"),
            ("appendonly", "no", "yes"),
            ("maxmemory-policy", "allkeys-lru", "noeviction"),
        ] {
            let server = durable().await?;
            set(&server, "maxmemory", "100mb").await?;
            let client = connect(&server.url()).await?;
            assert_eq!(exclusion(&client), Exclusion::Restart);
            set(&server, setting, bad).await?;
            watched.push((server, client, setting, good));
        }
        for (server, client, setting, good) in &watched {
            let ended = async || Ok(exclusion(client) == Exclusion::Nothing);
            until("the promise is taken back", ended).await?;
            set(server, setting, good).await?;
        }
        for (_, client, setting, _) in &watched {
            let made = async || Ok(exclusion(client) == Exclusion::Restart);
            until(&format!("the promise is made again: {setting}"), made).await?;
        }
        Ok(())
    })
}

#[test]
fn a_refused_command_is_not_sent_again() {
    run(async {
        let server = RedisServer::start(&Options::new()).await?;
        let line = include_str!("../../src/acl.txt");
        server.command(&line.split_whitespace().collect::<Vec<_>>()).await?.ok()?;
        let url = format!("redis://dlock:password@{}", server.address());
        // One has nothing to query, the other queries once.
        let _guarded = connect(&format!("{url}?dlock.restart_guard=1h")).await?;
        let _other = connect(&url).await?;
        // Longer than the interval between two reads of the settings.
        tokio::time::sleep(Duration::from_secs(12)).await;
        let counts = server.info("commandstats").await?;
        let config = counts.lines().find(|line| line.starts_with("cmdstat_config"));
        assert!(config.is_some_and(|line| line.contains("rejected_calls=1,")), "{config:?}");
        Ok(())
    })
}

#[test]
fn an_evicting_server_guarantees_nothing_with_a_guard() {
    run(async {
        let masters = RedisMasters::start(3, &Options::new()).await?;
        let single = format!("{}?dlock.restart_guard=1h", masters.servers()[0].url());
        assert_eq!(exclusion(&connect(&single).await?), Exclusion::Restart);
        assert_eq!(exclusion(&connect(&masters.url()).await?), Exclusion::Failover);
        set(&masters.servers()[0], "maxmemory", "100mb").await?;
        set(&masters.servers()[0], "maxmemory-policy", "volatile-ttl").await?;
        assert_eq!(exclusion(&connect(&single).await?), Exclusion::Nothing);
        let quorum = connect(&masters.url()).await?;
        assert_eq!(exclusion(&quorum), Exclusion::Nothing);
        // The last known settings of an unreachable server count.
        masters.servers()[0].kill();
        until("it is seen that it is away", async || {
            let findings = quorum.examine().await?;
            Ok(findings.iter().any(|finding| finding.about == "server"))
        })
        .await?;
        assert_eq!(exclusion(&quorum), Exclusion::Nothing);
        Ok(())
    })
}
