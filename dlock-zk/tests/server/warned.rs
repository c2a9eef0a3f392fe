//! The warning of a session timeout that is too short for the servers' own times.

use std::time::Duration;

use dlock_testkit::Heard;
use dlock_testlab::{
    Stop, Verdict,
    zookeeper::{Ensemble, Options},
};
use tokio::time::sleep;

use crate::support::{connect, run, server, until, works};

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
    until("the settings were told", async || {
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
fn only_a_short_session_timeout_is_warned_of_and_only_once() {
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
fn servers_that_do_not_tell_are_not_in_the_way() {
    run(async {
        let ensemble = Ensemble::start(&options().with_words("")).await?;
        not_told(&ensemble.connect_string()).await
    })
}

/// It has no leader to lose.
#[test]
fn one_server_is_not_warned_of() {
    run(async {
        let server = server().await?;
        not_told(&server.address()).await
    })
}

async fn not_told(hosts: &str) -> Verdict {
    let (heard, _guard) = Heard::listen();
    let url = format!("zk://{hosts}?dlock.session_timeout=10s");
    let client = connect(&url).await?;
    works(&client, "a").await?;
    until_heard(&heard, &url, "server does not report its settings").await?;
    assert!(warnings(&heard).is_empty(), "{:?}", warnings(&heard));
    works(&client, "a").await
}
