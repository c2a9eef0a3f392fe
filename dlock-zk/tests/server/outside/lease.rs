//! Leases that are longer than sessions.

use std::time::Duration;

use dlock_core::{Level, LockOptions, Locks};
use dlock_testkit::Heard;
use dlock_testlab::Stop;

use crate::support::{connect, run, server, url};

#[test]
fn a_lease_longer_than_the_session_allows_is_reported_once() {
    run(async {
        let server = server().await?;
        let (heard, _guard) = Heard::listen();
        let locks = Locks::new(connect(&url(&server)).await?)?;
        let lease = |seconds| LockOptions::new().with_lease(Duration::from_secs(seconds));
        let told = || {
            let text = heard.text();
            text.lines()
                .filter(|line| line.contains("lease shortened"))
                .map(str::to_owned)
                .collect()
        };
        // Nobody has asked for more than 7.5 s.
        let as_it_is = [locks.clone(), locks.with_options(LockOptions::new())?];
        for locks in as_it_is.into_iter().chain([locks.with_options(lease(7))?]) {
            assert!(locks.examine().await?.iter().all(|finding| finding.about != "lease"));
        }
        assert_eq!(told(), Vec::<String>::new());
        let long = locks.with_options(lease(60))?;
        locks.with_options(lease(60))?;
        let told: Vec<String> = told();
        let [line] = &told[..] else { return Err(Stop::failed(format!("{told:?}"))) };
        for part in ["WARN dlock ", "asked=60s", "lease=7.5s", "dlock.session_timeout", "zk://"] {
            assert!(line.contains(part), "{part} is not in {line}");
        }
        let findings = long.examine().await?;
        let found = findings.iter().find(|finding| finding.about == "lease");
        let found = found.ok_or_else(|| Stop::failed(format!("{findings:?}")))?;
        assert_eq!(
            (found.level, found.found.as_str()),
            (Level::Warning, "leases last 7.5s, although 60s was requested")
        );
        Ok(())
    })
}
