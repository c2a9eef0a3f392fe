//! The findings about the servers' settings that a client can see.

use std::time::Duration;

use dlock_core::{Error, Finding};
use zookeeper_client::Error as ZkError;

use crate::{
    error::{explain, no_answer},
    node::ELECTIONS,
    preflight::{LACKING, ask_any, field, longest_isolation, too_old},
    session::Session,
};

/// A root with more directories than this gets a finding: the list has about 60 bytes for each, and
/// other clients stop at 1 MB.
const MANY: usize = 15_000;

/// If fewer elections than this are left, there is a finding. It leaves time to move the locks.
const MANY_ELECTIONS: u64 = 100_000;

/// Returns the findings about the servers, the session and the root.
pub(crate) async fn examine(session: &Session) -> Result<Vec<Finding>, Error> {
    let config = &session.config;
    let (about, settings) = tokio::join!(ask_any(config, "srvr"), ask_any(config, "conf"));
    let mut findings = vec![
        version(about.as_deref()),
        ensemble(session.servers.voters),
        length(session.timeout, config.session_timeout),
        isolation(session.timeout, settings.as_deref()),
        Finding::fine("clock", "clocks do not matter: a lock ends with its session"),
    ];
    findings.extend(tokens(about.as_deref()));
    match tokio::time::timeout(session.timeout, root(session)).await {
        Ok(found) => findings.extend(found?),
        Err(_) => return Err(no_answer()),
    }
    Ok(findings)
}

/// Returns the findings about this client's rights in the root. Nodes that it creates are deleted
/// again.
async fn root(session: &Session) -> Result<Vec<Finding>, Error> {
    let made = async { session.delete_path(&session.begin_epoch().await?).await };
    let rights = match made.await {
        Ok(_) => Finding::fine("rights", "this client may create and delete nodes below the root"),
        Err(ZkError::NoAuth) => Finding::wrong(
            "rights",
            "this client may not create or delete nodes below the root",
            "write user and password in the URL, or run setAcl on the root: dlock needs create, \
             read, write and delete (cdrw)",
        ),
        Err(ZkError::QuotaExceeded) => Finding::wrong(
            "rights",
            "the quota of the root is used up",
            "raise it with setquota, or delete nodes",
        ),
        Err(error) => return Err(explain(error)),
    };
    let names = match session.directories().await {
        Ok(directories) => names(directories.len()),
        Err(ZkError::NoAuth) => Finding::warning(
            "names",
            "this client may use locks, but not list them",
            "run setAcl on the root, with read (r) for this client",
        ),
        Err(error) => return Err(explain(error)),
    };
    Ok(vec![rights, names])
}

fn names(count: usize) -> Finding {
    let found = format!("{count} names have a node below the root");
    match count {
        ..=MANY => Finding::fine("names", found),
        _ => Finding::warning(
            "names",
            found,
            "check that the nodes of names that are used once are deleted (the servers delete \
             empty containers), or spread locks over several dlock.root: a list of them takes an \
             answer above 1 MB, which other programs refuse (jute.maxbuffer)",
        ),
    }
}

fn version(answer: Option<&str>) -> Finding {
    match (field(answer, "Zookeeper version:"), field(answer, "Mode:")) {
        (Some(version), _) if too_old(answer).is_some() => Finding::wrong(
            "version",
            format!("ZooKeeper {version:.40}, which lacks {LACKING}"),
            "upgrade it to ZooKeeper 3.5.3 or later",
        ),
        (Some(version), mode) => Finding::fine(
            "version",
            format!("ZooKeeper {version:.40}, {:.40}", mode.unwrap_or("mode unknown")),
        ),
        _ => Finding::warning(
            "version",
            "no server reports its version",
            "check it on the servers, or allow the command without TLS: \
             4lw.commands.whitelist=srvr,conf",
        ),
    }
}

/// Returns the finding about the elections that are left, if they are few: see [`ELECTIONS`].
fn tokens(answer: Option<&str>) -> Option<Finding> {
    let elections = u64::from_str_radix(field(answer, "Zxid: 0x")?, 16).ok()? >> 32;
    (elections > MANY_ELECTIONS).then(|| {
        Finding::warning(
            "tokens",
            format!("the ensemble has elected {elections} leaders: tokens last for {ELECTIONS}"),
            "find out why the ensemble elects so often, and plan to move the locks to a new one",
        )
    })
}

fn ensemble(members: Option<usize>) -> Finding {
    let remedy = "run three or five servers, on separate machines";
    match members {
        None => Finding::warning(
            "ensemble",
            "the number of voting servers is unknown",
            "let this client read /zookeeper/config, or check the servers' zoo.cfg",
        ),
        Some(1) => Finding::warning(
            "ensemble",
            "one server votes: while it is down, locks are unavailable",
            remedy,
        ),
        Some(even) if even % 2 == 0 => Finding::warning(
            "ensemble",
            format!("{even} servers vote, which tolerates no more failures than {}", even - 1),
            remedy,
        ),
        Some(odd) => Finding::fine("ensemble", format!("{odd} servers vote")),
    }
}

fn length(granted: Duration, asked: Duration) -> Finding {
    let found = format!("the session timeout is {granted:?}");
    match granted < asked {
        true => Finding::warning(
            "session",
            format!(
                "{found}, although {asked:?} was requested: leases are no longer than half of it"
            ),
            "raise maxSessionTimeout in the servers' zoo.cfg, or lower dlock.session_timeout",
        ),
        false => Finding::fine("session", found),
    }
}

fn isolation(timeout: Duration, settings: Option<&str>) -> Finding {
    // If a server may not answer this command, it returns an explanation instead.
    let Some(settings) = settings.filter(|text| text.contains("tickTime=")) else {
        return Finding::warning(
            "sync limit",
            "no server reports its timeouts",
            "check that syncLimit x tickTime in zoo.cfg is below dlock.session_timeout, or allow \
             the command without TLS: 4lw.commands.whitelist=srvr,conf",
        );
    };
    match longest_isolation(settings) {
        Some(isolated) if timeout <= isolated => Finding::warning(
            "sync limit",
            format!(
                "a partitioned server serves its clients for {isolated:?}, and the session timeout is \
                 {timeout:?}"
            ),
            "raise dlock.session_timeout above syncLimit x tickTime, or lower syncLimit in zoo.cfg",
        ),
        _ => Finding::fine("sync limit", "the session timeout is above that of the servers"),
    }
}

#[cfg(test)]
mod tests {
    use dlock_core::Level;

    use super::*;

    #[test]
    fn wrong_settings_are_reported_with_a_remedy() {
        let seconds = Duration::from_secs;
        let conf = "tickTime=2000\nsyncLimit=5\n";
        let srvr = "Zookeeper version: 3.8.4-9316c2a, built on 2024\nMode: leader\nNode count: 9\n";
        for (finding, level, remedy) in [
            (version(Some(srvr)), Level::Fine, ""),
            (version(Some("Zookeeper version: 3.4.14-4c25d\n")), Level::Wrong, "3.5.3"),
            (version(None), Level::Warning, "4lw"),
            (version(Some("srvr is not executed")), Level::Warning, "4lw"),
            (tokens(Some("Zxid: 0x2000000000000\n")).unwrap(), Level::Warning, "plan to move"),
            (ensemble(Some(3)), Level::Fine, ""),
            (ensemble(Some(1)), Level::Warning, "three"),
            (ensemble(Some(4)), Level::Warning, "three"),
            (ensemble(None), Level::Warning, "zoo.cfg"),
            (length(seconds(10), seconds(10)), Level::Fine, ""),
            (length(seconds(10), seconds(60)), Level::Warning, "maxSessionTimeout"),
            (isolation(seconds(15), Some(conf)), Level::Fine, ""),
            (isolation(seconds(10), Some(conf)), Level::Warning, "syncLimit"),
            (isolation(seconds(10), None), Level::Warning, "syncLimit"),
            (isolation(seconds(10), Some("conf is not executed")), Level::Warning, "syncLimit"),
            (isolation(seconds(10), Some("tickTime=2000\n")), Level::Fine, ""),
            (names(3), Level::Fine, ""),
            (names(1_000_000), Level::Warning, "dlock.root"),
        ] {
            assert_eq!(finding.level, level, "{finding:?}");
            let says = finding.remedy.as_deref().unwrap_or_default();
            assert!(says.contains(remedy), "{finding:?}");
            assert_eq!(says.is_empty(), level == Level::Fine, "{finding:?}");
        }
        assert_eq!(tokens(Some("Zxid: 0x10000000a\n")), None);
        assert_eq!(tokens(Some(srvr)), None);
        assert_eq!(version(Some(srvr)).found, "ZooKeeper 3.8.4, leader");
    }
}
