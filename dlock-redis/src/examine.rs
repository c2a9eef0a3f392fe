//! The findings about the servers' settings, and their meaning for locks.
//!
//! The user may lack the right to read a setting. That becomes a finding, and never a good one. An
//! error of another kind is reported as it is. All commands only read, so they can be repeated, and
//! no cleanup is needed.

mod cluster;
mod sentinels;
mod server;

use std::{collections::HashMap, time::Duration};

use dlock_core::{ConfigIssue, Error, ErrorKind, Finding, Level};
use redis::{Pipeline, RedisError, Value};

use self::server::{ServerReport, Wants};
use crate::{
    config::Topology,
    error::{explain, is_denial, is_refusal},
    link::{self, Link},
    reply,
    session::Session,
};

/// The settings, each read by a command of its own, since a service may refuse one of them.
const SETTINGS: [&str; 6] = [
    "appendfsync",
    "min-replicas-max-lag",
    "min-replicas-to-write",
    "no-appendfsync-on-rewrite",
    "tcp-keepalive",
    "timeout",
];

/// Returns the findings about all servers of a store. `replicas` is the number that must have each
/// grant.
pub(crate) async fn examine(session: &Session, replicas: u32) -> Result<Vec<Finding>, Error> {
    let wants = Wants {
        replicas,
        guard: session.guard,
        is_cluster: session.topology == Topology::Cluster,
        has_sentinels: matches!(session.topology, Topology::Sentinel(_)),
    };
    let mut servers = session.link.servers();
    servers.sort();
    servers.dedup();
    let (mut all, mut failed) = (Vec::new(), None);
    for server in &servers {
        // An error of one server does not end the loop: the findings of the others may explain it.
        match ask(&session.link, server).await {
            Ok(seen) => all.push((server.to_string(), seen.findings(&wants))),
            Err(error) => {
                all.push((server.to_string(), vec![away(&error)]));
                failed = Some(error);
            }
        }
    }
    if let Some(error) = failed.filter(|_| servers.len() < 2) {
        return Err(explain(error));
    }
    let works = all.iter().flat_map(|(_, found)| found).all(|finding| finding.level < Level::Wrong);
    let mut findings = merged(all);
    if works && let Err(error) = session.check_rights().await {
        // It outweighs the finding that the rights can be listed.
        findings.retain(|finding| finding.about != "rights");
        findings.push(judge_rights(&error));
    }
    match &session.topology {
        Topology::Sentinel(name) => {
            findings.extend(sentinels::examine(session.link.config(), name).await);
        }
        Topology::Cluster => findings.extend(cluster::examine(&session.link, &servers).await),
        _ => {}
    }
    Ok(findings)
}

/// The finding about a server that can't be examined.
fn away(error: &RedisError) -> Finding {
    let (does, remedy) = match is_refusal(error) {
        true => ("refuses to answer", "check its log, and wait until it serves requests"),
        false => ("does not answer", "check that it runs, and that this machine can reach it"),
    };
    Finding::wrong("server", format!("it {does} ({error})"), remedy)
}

/// The finding about the error of an attempt to use all commands of locks.
fn judge_rights(error: &Error) -> Finding {
    match error.kind() {
        ErrorKind::Config(ConfigIssue::Access) | ErrorKind::Unsupported => Finding::wrong(
            "rights",
            format!("this user lacks rights that locks need: {error}"),
            "run the command in the message (ACL SETUSER) as a user who may",
        ),
        _ => Finding::warning(
            "rights",
            format!("whether this user has the rights that locks need is unknown: {error}"),
            "run the doctor again when the server serves requests",
        ),
    }
}

/// Merges the findings of the servers. A finding that all have in common appears once.
pub(crate) fn merged(all: Vec<(String, Vec<Finding>)>) -> Vec<Finding> {
    let (mut findings, many) = (Vec::<Finding>::new(), all.len() > 1);
    for (at, server) in &all {
        for finding in server {
            let is_common = all.iter().all(|(_, others)| others.contains(finding));
            let mut finding = finding.clone();
            if many && !is_common {
                finding.found = format!("{at}: {}", finding.found);
            }
            if !findings.contains(&finding) {
                findings.push(finding);
            }
        }
    }
    findings
}

/// Sends one server all commands that the findings need.
async fn ask(link: &Link, at: &link::Server) -> Result<ServerReport, RedisError> {
    let info = query(link, at, redis::pipe().cmd("INFO").arg("everything")).await?;
    let info = info.as_ref().and_then(reply::text).map(|text| reply::fields(&text));
    let mut settings = HashMap::new();
    for name in SETTINGS {
        let answer = query(link, at, redis::pipe().cmd("CONFIG").arg("GET").arg(name)).await?;
        settings.extend(answer.as_ref().and_then(reply::pairs).unwrap_or_default());
    }
    let time = query(link, at, redis::pipe().cmd("TIME")).await?;
    let scans = query(link, at, redis::pipe().cmd("SCAN").arg(0).arg("COUNT").arg(1)).await?;
    Ok(ServerReport {
        info,
        settings,
        time: time.as_ref().and_then(reply::micros).map(Duration::from_micros),
        may_scan: scans.is_some(),
    })
}

/// Returns the answer of a server. `None` if this user lacks the right.
async fn query(
    link: &Link,
    at: &link::Server,
    command: &Pipeline,
) -> Result<Option<Value>, RedisError> {
    match link.send_to(at, command).await {
        Ok((answer, _)) => Ok(Some(answer)),
        Err(error) if is_denial(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_no_missing_right_and_no_missing_answer() {
        let busy = RedisError::from((redis::ErrorKind::Extension, "BUSY"));
        assert!(away(&busy).found.contains("refuses"), "{:?}", away(&busy));
        let slow = RedisError::from((redis::ErrorKind::Io, "no answer in time"));
        assert!(away(&slow).found.contains("does not answer"), "{:?}", away(&slow));
        let slow = judge_rights(&Error::new(ErrorKind::Unavailable, "no answer in time"));
        assert_eq!(slow.level, Level::Warning, "{slow:?}");
        assert!(slow.found.contains("unknown"), "{slow:?}");
        let denied = judge_rights(&Error::config(ConfigIssue::Access, "NOPERM"));
        assert_eq!(denied.level, Level::Wrong, "{denied:?}");
    }
}
