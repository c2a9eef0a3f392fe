//! The findings about a server.

use std::time::Duration;

use dlock_core::{DynBackend, Finding, Level};
use dlock_testlab::{
    Stop,
    etcd::{EtcdServer, Options},
};

use crate::support::{connect, run, start, works};

async fn finding(client: &DynBackend, about: &str) -> Result<Finding, Stop> {
    let findings = client.examine().await?;
    for finding in &findings {
        assert_eq!(finding.remedy.is_none(), finding.level == Level::Fine, "{finding:?}");
    }
    let found = findings.into_iter().find(|finding| finding.about == about);
    found.ok_or_else(|| Stop::failed(format!("nothing about {about}")))
}

#[test]
fn a_single_server_and_its_version_are_reported() {
    run(async {
        let (server, client, _) = start().await?;
        let version = finding(&client, "version").await?;
        assert!(version.found.contains(server.version()), "{version:?}");
        assert_ne!(version.level, Level::Wrong, "{version:?}");
        for (about, level) in [
            ("members", Level::Warning),
            ("alarms", Level::Fine),
            ("quota", Level::Fine),
            ("compaction", Level::Fine),
            ("session", Level::Fine),
            ("rights", Level::Fine),
            ("root", Level::Fine),
        ] {
            let found = finding(&client, about).await?;
            assert_eq!(found.level, level, "{found:?}");
        }
        works(&client, "a").await
    });
}

#[test]
fn a_go_mutex_named_like_the_root_is_reported() {
    run(async {
        let (server, client, _) = start().await?;
        works(&client, "a").await?;
        server.put("/dlock/694d7d2a5c1f0d06", "").await?;
        let found = finding(&client, "root").await?;
        assert!(
            found.level == Level::Wrong && found.found.contains("694d7d2a5c1f0d06"),
            "{found:?}"
        );
        Ok(())
    });
}

#[test]
fn a_session_timeout_that_the_server_raises_is_reported() {
    run(async {
        let slow = Options::new().with_election(Duration::from_millis(400), Duration::from_secs(4));
        let server = EtcdServer::start(&slow).await?;
        let client = connect(&format!("{}?dlock.session_timeout=2s", server.url())).await?;
        let found = finding(&client, "session").await?;
        assert!(found.level == Level::Warning && found.found.contains("6s"), "{found:?}");
        assert_eq!(client.longest_lease(), Duration::from_secs(4));
        Ok(())
    });
}
