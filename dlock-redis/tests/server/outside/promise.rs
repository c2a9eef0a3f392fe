//! A promise rests on all settings that it depends on, as they are now.

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
fn a_disk_that_is_not_waited_for_while_a_child_runs_promises_nothing() {
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
fn settings_that_change_while_connected_end_the_promise() {
    run(async {
        let mut watched = Vec::new();
        for (setting, value) in [
            ("no-appendfsync-on-rewrite", "yes"),
            ("appendfsync", "everysec"),
            ("appendonly", "no"),
            ("maxmemory-policy", "allkeys-lru"),
        ] {
            let server = durable().await?;
            set(&server, "maxmemory", "100mb").await?;
            let client = connect(&server.url()).await?;
            assert_eq!(exclusion(&client), Exclusion::Restart);
            set(&server, setting, value).await?;
            watched.push((server, client));
        }
        for (_, client) in &watched {
            let ended = async || Ok(exclusion(client) == Exclusion::Nothing);
            until("the promise is taken back", ended).await?;
        }
        Ok(())
    })
}

#[test]
fn a_server_that_evicts_promises_nothing_with_a_guard_either() {
    run(async {
        let masters = RedisMasters::start(3, &Options::new()).await?;
        let single = format!("{}?dlock.restart_guard=1h", masters.servers()[0].url());
        assert_eq!(exclusion(&connect(&single).await?), Exclusion::Restart);
        assert_eq!(exclusion(&connect(&masters.url()).await?), Exclusion::Failover);
        set(&masters.servers()[0], "maxmemory", "100mb").await?;
        set(&masters.servers()[0], "maxmemory-policy", "volatile-ttl").await?;
        assert_eq!(exclusion(&connect(&single).await?), Exclusion::Nothing);
        assert_eq!(exclusion(&connect(&masters.url()).await?), Exclusion::Nothing);
        Ok(())
    })
}
