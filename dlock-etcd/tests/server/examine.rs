//! The findings about a server.

use std::time::Duration;

use dlock_core::{DynBackend, Finding, Level};
use dlock_testlab::{
    Stop,
    etcd::{EtcdServer, Options},
};
use futures_util::future::try_join_all;

use crate::support::{connect, exclusive, free, run, start, take, works};

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
        // Servers before 3.6 do not report their quota.
        let hides = ["3.4.", "3.5."].iter().any(|old| server.version().starts_with(old));
        for (about, level) in [
            ("members", Level::Warning),
            ("alarms", Level::Fine),
            ("quota", if hides { Level::Warning } else { Level::Fine }),
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
fn a_go_mutex_behind_many_claims_is_reported() {
    run(async {
        let (server, client, _) = start().await?;
        let claims: Vec<_> = (0..1001).map(|at| exclusive(&format!("{}", 100_000 + at))).collect();
        try_join_all(claims.iter().map(|claim| take(&client, claim))).await?;
        assert_eq!(finding(&client, "root").await?.level, Level::Fine);
        server.put("/dlock/694d7d2a5c1f0d06", "").await?;
        let found = finding(&client, "root").await?;
        assert_eq!(found.level, Level::Wrong, "{found:?}");
        try_join_all(claims.iter().map(|claim| free(&client, claim))).await?;
        Ok(())
    })
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
