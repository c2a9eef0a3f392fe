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

/// The servers go on without their leader for three seconds.
fn options() -> Options {
    Options::new().with_tick(Duration::from_millis(500)).with_sync_limit(Duration::from_secs(3))
}

fn warnings(heard: &Heard) -> Vec<String> {
    let text = heard.text();
    text.lines().filter(|line| line.contains(WARNING)).map(str::to_owned).collect()
}

/// What a client of these servers with this timeout is heard to warn of.
async fn heard_of(hosts: &str, timeout: &str) -> Result<Vec<String>, Stop> {
    let (heard, _guard) = Heard::listen();
    let url = format!("zk://joe:secret@{hosts}?dlock.session_timeout={timeout}&dlock.root=/joe");
    let client = connect(&url).await?;
    works(&client, "a").await?;
    sleep(LOOKED).await;
    assert!(!heard.text().contains("secret"), "{}", heard.text());
    Ok(warnings(&heard))
}

#[test]
fn a_timeout_that_is_too_short_is_warned_of_once_and_a_longer_one_is_not() {
    run(async {
        let ensemble = Ensemble::start(&options()).await?;
        for timeout in ["2s", "3s"] {
            let warnings = heard_of(&ensemble.connect_string(), timeout).await?;
            let [warning] = &warnings[..] else { panic!("{timeout}: {warnings:?}") };
            assert!(warning.starts_with("WARN dlock_zk"), "{warning}");
            for part in ["sync_limit=3s", &format!("session_timeout={timeout}"), "zk://127.0.0.1"] {
                assert!(warning.contains(part), "{part} is not in {warning}");
            }
        }
        for timeout in ["4s", "30s"] {
            let warnings = heard_of(&ensemble.connect_string(), timeout).await?;
            assert!(warnings.is_empty(), "{timeout}: {warnings:?}");
        }
        Ok(())
    })
}

/// It may be another one than was asked for.
#[test]
fn what_counts_is_the_timeout_that_the_servers_give() {
    run(async {
        let options = options().with_sessions(Duration::from_secs(1), Duration::from_millis(2500));
        let ensemble = Ensemble::start(&options).await?;
        let warnings = heard_of(&ensemble.connect_string(), "30s").await?;
        assert!(
            warnings.len() == 1 && warnings[0].contains("session_timeout=2.5s"),
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
    let client = connect(&format!("zk://{hosts}?dlock.session_timeout=2s")).await?;
    works(&client, "a").await?;
    until("the settings were asked for", async || {
        Ok(heard.text().contains("the server does not tell its settings"))
    })
    .await?;
    assert!(warnings(&heard).is_empty(), "{:?}", warnings(&heard));
    works(&client, "a").await
}
