//! Warnings about a session timeout that is too short for the servers' settings, or for a lease.

use std::time::Duration;

use dlock_core::{Level, LockOptions, Locks};
use dlock_testkit::Heard;
use dlock_testlab::{
    Stop, Verdict,
    zookeeper::{Ensemble, Options},
};
use tokio::time::sleep;

use crate::support::{connect, run, server, until, url, works};

const WARNING: &str = "not above syncLimit x tickTime";

/// Longer than the look at the servers' settings takes in the end.
const LOOKED: Duration = Duration::from_secs(3);

/// The servers go on without their leader for fifteen seconds. Sessions are long enough for a busy
/// machine.
fn options() -> Options {
    Options::new().with_tick(Duration::from_millis(500)).with_sync_limit(Duration::from_secs(15))
}

fn warnings(heard: &Heard) -> Vec<String> {
    let text = heard.text();
    text.lines().filter(|line| line.contains(WARNING)).map(str::to_owned).collect()
}

/// The warnings of a client of these servers with this timeout, if it has to warn.
async fn heard_of(hosts: &str, timeout: &str, warned: bool) -> Result<Vec<String>, Stop> {
    let (heard, _guard) = Heard::listen();
    let url = format!("zk://joe:secret@{hosts}?dlock.session_timeout={timeout}&dlock.root=/joe");
    let client = connect(&url).await?;
    works(&client, "a").await?;
    sleep(LOOKED).await;
    if warned {
        until_heard(&heard, &url, WARNING).await?;
    }
    assert!(!heard.text().contains("secret"), "{}", heard.text());
    Ok(warnings(&heard))
}

/// Connects again until it is heard: a busy server may take longer to tell its settings than it is
/// asked for.
async fn until_heard(heard: &Heard, url: &str, words: &str) -> Verdict {
    until("the settings were reported", async || {
        for _ in 0..100 {
            if heard.text().contains(words) {
                return Ok(true);
            }
            sleep(LOOKED / 100).await;
        }
        connect(url).await?;
        Ok(false)
    })
    .await
}

#[test]
fn a_short_session_timeout_is_warned_of_once() {
    run(async {
        let ensemble = Ensemble::start(&options()).await?;
        for timeout in ["10s", "15s"] {
            let warnings = heard_of(&ensemble.connect_string(), timeout, true).await?;
            let [warning] = &warnings[..] else { panic!("{timeout}: {warnings:?}") };
            assert!(warning.starts_with("WARN dlock "), "{warning}");
            for part in ["sync_limit=15s", &format!("session_timeout={timeout}"), "zk://127.0.0.1"]
            {
                assert!(warning.contains(part), "{part} is not in {warning}");
            }
        }
        for timeout in ["16s", "30s"] {
            let warnings = heard_of(&ensemble.connect_string(), timeout, false).await?;
            assert!(warnings.is_empty(), "{timeout}: {warnings:?}");
        }
        Ok(())
    })
}

/// It may be another one than was asked for.
#[test]
fn the_warning_uses_the_timeout_that_the_servers_granted() {
    run(async {
        let options = options().with_sessions(Duration::from_secs(1), Duration::from_millis(12500));
        let ensemble = Ensemble::start(&options).await?;
        let warnings = heard_of(&ensemble.connect_string(), "30s", true).await?;
        assert!(
            warnings.len() == 1 && warnings[0].contains("session_timeout=12.5s"),
            "{warnings:?}"
        );
        Ok(())
    })
}

#[test]
fn servers_that_hide_their_settings_cause_no_warning() {
    run(async {
        let ensemble = Ensemble::start(&options().with_words("")).await?;
        no_warning(&ensemble.connect_string()).await
    })
}

/// It has no leader to lose.
#[test]
fn one_server_causes_no_warning() {
    run(async {
        let server = server().await?;
        no_warning(&server.address()).await
    })
}

async fn no_warning(hosts: &str) -> Verdict {
    let (heard, _guard) = Heard::listen();
    let url = format!("zk://{hosts}?dlock.session_timeout=10s");
    let client = connect(&url).await?;
    works(&client, "a").await?;
    until_heard(&heard, &url, "server does not report its settings").await?;
    assert!(warnings(&heard).is_empty(), "{:?}", warnings(&heard));
    works(&client, "a").await
}

#[test]
fn a_lease_longer_than_the_session_allows_is_reported_once() {
    run(async {
        let server = server().await?;
        let (heard, _guard) = Heard::listen();
        let locks = Locks::new(connect(&url(&server)).await?)?;
        let lease = |seconds| LockOptions::new().with_lease(Duration::from_secs(seconds));
        let reported = || {
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
        assert_eq!(reported(), Vec::<String>::new());
        let long = locks.with_options(lease(60))?;
        locks.with_options(lease(60))?;
        let reported: Vec<String> = reported();
        let [line] = &reported[..] else { return Err(Stop::failed(format!("{reported:?}"))) };
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
