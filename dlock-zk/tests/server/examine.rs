//! The findings about the servers, and the list of names.

use std::time::Duration;

use dlock_core::{ConfigIssue, DynBackend, ErrorKind, Finding, Level};
use dlock_testkit::found;
use dlock_testlab::{
    Stop,
    zookeeper::{Ensemble, Options, ZooKeeperServer},
};
use zookeeper_client::{Acl, AuthId, CreateMode, Permission};

use crate::support::{connect, exclusive, free, name, raw, run, says, server, take, until, url};

/// A server that keeps the root even if it is empty for a while, and a client.
async fn start_with_a_root() -> Result<(ZooKeeperServer, DynBackend), Stop> {
    let never = Duration::from_secs(3600);
    let options = Options::new().with_container_checks_every(never);
    let server = ZooKeeperServer::start(&options).await?;
    let client = connect(&url(&server)).await?;
    Ok((server, client))
}

/// The findings that are not fine.
async fn amiss(client: &DynBackend) -> Result<Vec<Finding>, Stop> {
    found::amiss(client, 6).await
}

#[track_caller]
fn is_about(findings: &[Finding], expected: &[(&str, Level)]) {
    let about: Vec<_> = findings.iter().map(|finding| (finding.about, finding.level)).collect();
    assert_eq!(about, expected, "{findings:?}");
}

#[test]
fn an_ensemble_is_fine_while_all_three_servers_run() {
    run(async {
        let ensemble = Ensemble::start(&Options::new().with_words("srvr,conf")).await?;
        let client =
            connect(&format!("zk://{}?dlock.session_timeout=15s", ensemble.connect_string()))
                .await?;
        // A busy server may answer too late.
        until("all is fine", async || Ok(amiss(&client).await?.is_empty())).await?;
        let follower = &ensemble.nodes()[ensemble.followers().await?[0]];
        let address = follower.address();
        follower.kill();
        until("the server that is down is reported", async || {
            let found = amiss(&client).await.unwrap_or_default();
            let found = found.iter().find(|finding| finding.about == "ensemble");
            Ok(found.is_some_and(|finding| finding.found.contains(&address)))
        })
        .await
    })
}

#[test]
fn a_server_that_the_url_does_not_name_is_not_fine() {
    run(async {
        let ensemble = Ensemble::start(&Options::new().with_words("srvr,conf")).await?;
        let client = connect(&format!("zk://{}", ensemble.addresses()[0])).await?;
        let found = amiss(&client).await?;
        let found = found.iter().find(|finding| finding.about == "ensemble");
        assert!(found.is_some_and(|f| f.found.contains("visible for 1 of them")), "{found:?}");
        Ok(())
    })
}

#[test]
fn a_server_that_hides_its_settings_is_only_a_warning() {
    run(async {
        let server = ZooKeeperServer::start(&Options::new().with_words("ruok")).await?;
        let client = connect(&url(&server)).await?;
        let expected = [("ensemble", Level::Warning), ("sync limit", Level::Warning)];
        is_about(&amiss(&client).await?, &expected);
        Ok(())
    })
}

#[test]
fn a_root_without_rights_is_reported() {
    run(async {
        let (server, client) = start_with_a_root().await?;
        let raw = raw(&server).await?;
        let read = vec![Acl::new(Permission::READ | Permission::ADMIN, AuthId::anyone())];
        raw.set_acl("/dlock", &read, None).await?;
        let findings = amiss(&client).await?;
        let wrong: Vec<_> = findings.iter().filter(|f| f.level == Level::Wrong).collect();
        assert!(matches!(wrong[..], [finding] if finding.about == "rights"), "{findings:?}");
        Ok(())
    })
}

#[test]
fn an_unreadable_root_is_reported_and_not_listed() {
    run(async {
        let server = server().await?;
        let rest = Permission::CREATE | Permission::WRITE | Permission::DELETE;
        let acl = vec![Acl::new(rest, AuthId::anyone())];
        let mode = CreateMode::Persistent.with_acls(zookeeper_client::Acls::new(&acl));
        raw(&server).await?.create("/dlock", b"", &mode).await?;
        let client = connect(&url(&server)).await?;
        let findings = amiss(&client).await?;
        let found = findings.iter().find(|finding| finding.about == "names");
        assert!(found.is_some_and(|f| f.level == Level::Warning), "{findings:?}");
        let error = client.list("", 1).await.err().ok_or_else(|| Stop::failed("it lists"))?;
        says(&error, ErrorKind::Config(ConfigIssue::Access), "read");
        Ok(())
    })
}

#[test]
fn directories_of_others_are_no_names() {
    run(async {
        let (server, client) = start_with_a_root().await?;
        let raw = raw(&server).await?;
        let open = CreateMode::Persistent.with_acls(zookeeper_client::Acls::anyone_all());
        for path in
            ["/dlock/other", "/dlock/other/child", "/dlock/%zz", "/dlock/%zz/child", "/dlock/empty"]
        {
            raw.create(path, b"", &open).await?;
        }
        let held = exclusive("held/1");
        take(&client, &held).await?;
        assert_eq!(client.list("", 10).await?, [name("held/1")]);
        free(&client, &held).await?;
        assert_eq!(client.list("", 10).await?, []);
        Ok(())
    })
}
