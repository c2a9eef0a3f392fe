//! The findings about the servers' settings that a client can see.

use std::{
    collections::{BTreeSet, HashSet},
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use dlock_core::{Error, Finding};
use futures_util::future::join_all;
use tokio::{net::lookup_host, time::timeout};
use zookeeper_client::Error as ZkError;

use crate::{
    connect::LOOKUP_TIMEOUT,
    error::{explain, no_answer},
    node::ELECTIONS,
    preflight::{LACKING, ask_any, ask_one, field, longest_isolation, too_old},
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
    let (about, settings, ensemble) =
        tokio::join!(ask_any(config, "srvr"), ask_any(config, "conf"), look_at_voters(session));
    let mut findings = vec![
        version(about.as_deref()),
        ensemble,
        length(session.timeout, config.session_timeout),
        isolation(session.timeout, settings.as_deref()),
        Finding::fine("clock", "clocks do not matter: a lock ends with its session"),
    ];
    findings.extend(tokens(about.as_deref()));
    match timeout(session.timeout, root(session)).await {
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
    match (field(answer, "Zookeeper version:"), mode(answer)) {
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

/// The servers that answer, of those that the URL and the configuration name.
#[derive(Debug, Default, PartialEq, Eq)]
struct SeenVoters {
    /// The number of voters that serve.
    serving: usize,
    /// The names of the other ones. They may be other names of servers that serve.
    away: Vec<String>,
}

/// Asks all servers whose addresses are known whether they serve, and returns the finding about
/// them.
async fn look_at_voters(session: &Session) -> Finding {
    let config = timeout(session.timeout, session.client.get_config()).await;
    let Ok(Ok((config, _))) = config else { return ensemble(None, None) };
    let voters = voters(&String::from_utf8_lossy(&config));
    let seen = match session.config.tls {
        None => {
            let known = voters.iter().flatten();
            let hosts: BTreeSet<&String> = session.config.hosts.iter().chain(known).collect();
            Some(SeenVoters::of(join_all(hosts.into_iter().map(|host| ask_host(host))).await))
        }
        Some(_) => None,
    };
    ensemble(Some(voters.len().max(1)), seen.as_ref())
}

/// Returns the client address of each voter in the configuration that the servers share, if it is
/// known: servers with `clientPort` in their own configuration do not share it.
fn voters(config: &str) -> Vec<Option<String>> {
    let servers = config.lines().filter(|line| line.starts_with("server."));
    let voters = servers.filter(|line| !line.contains(":observer"));
    voters.map(|line| client_address(line.split_once('=')?.1)).collect()
}

/// Reads `host:2888:3888:participant;host:2181`. The part after the semicolon may be the port alone,
/// or begin with an address that stands for all addresses of the host.
fn client_address(server: &str) -> Option<String> {
    let (peer, client) = server.trim().split_once(';')?;
    let (host, port) = client.rsplit_once(':').unwrap_or(("", client));
    let ip: Option<IpAddr> = host.trim_matches(['[', ']']).parse().ok();
    if !host.is_empty() && !ip.is_some_and(|ip| ip.is_unspecified()) {
        return Some(client.to_owned());
    }
    // A server may have several addresses for the others.
    let peer = peer.split('|').next()?;
    let host = match peer.strip_prefix('[') {
        Some(rest) => format!("[{}]", rest.split_once(']')?.0),
        None => peer.split(':').next()?.to_owned(),
    };
    Some(format!("{host}:{port}"))
}

/// The addresses of a host, and whether a voter serves there. `None` for a server that does not
/// vote.
type Answers = Vec<(SocketAddr, Option<bool>)>;

/// Asks the servers at all addresses behind this name.
async fn ask_host(host: &str) -> (String, Answers) {
    let found = timeout(LOOKUP_TIMEOUT, lookup_host(host)).await;
    let addresses: HashSet<SocketAddr> = found.into_iter().flatten().flatten().collect();
    let asked = addresses.into_iter().map(async |address| {
        (address, serves(ask_one(&address.to_string(), "srvr").await.as_deref()))
    });
    (host.to_owned(), join_all(asked).await)
}

/// Returns whether a voter that gives this answer serves. `None` for a server that does not vote.
fn serves(answer: Option<&str>) -> Option<bool> {
    match mode(answer) {
        Some("observer") => None,
        // It has lost the majority, and takes no writes (`readonlymode.enabled`).
        Some("read-only") | None => Some(false),
        Some(_) => Some(true),
    }
}

/// Returns the mode that a server reports, if it serves clients. [`field`] would end it at a hyphen.
fn mode(answer: Option<&str>) -> Option<&str> {
    answer?.lines().find_map(|line| line.strip_prefix("Mode:")).map(str::trim)
}

impl SeenVoters {
    fn of(hosts: Vec<(String, Answers)>) -> Self {
        let serving = |address: &(SocketAddr, Option<bool>)| address.1 == Some(true);
        let all: HashSet<SocketAddr> = hosts
            .iter()
            .flat_map(|(_, of)| of)
            .filter(|one| serving(one))
            .map(|one| one.0)
            .collect();
        // A server may have an address of each family.
        let v4 = all.iter().filter(|address| address.is_ipv4()).count();
        let away = hosts
            .into_iter()
            .filter(|(_, of)| !of.iter().any(|address| serving(address) || address.1.is_none()));
        Self { serving: v4.max(all.len() - v4), away: away.map(|(host, _)| host).collect() }
    }
}

/// `seen` is `None` if no server can be asked.
fn ensemble(members: Option<usize>, seen: Option<&SeenVoters>) -> Finding {
    let remedy = "run three or five servers, on separate machines";
    let odd = match members {
        None => {
            return Finding::warning(
                "ensemble",
                "the number of voting servers is unknown",
                "let this client read /zookeeper/config, or check the servers' zoo.cfg",
            );
        }
        Some(1) => {
            return Finding::warning(
                "ensemble",
                "one server votes: while it is down, locks are unavailable",
                remedy,
            );
        }
        Some(even) if even % 2 == 0 => {
            return Finding::warning(
                "ensemble",
                format!("{even} servers vote, which tolerates no more failures than {}", even - 1),
                remedy,
            );
        }
        Some(odd) => odd,
    };
    let (serving, away) = match seen {
        Some(seen) if seen.serving >= odd => {
            return Finding::fine("ensemble", format!("{odd} servers vote, and all of them serve"));
        }
        Some(seen) => (seen.serving, &seen.away[..]),
        None => (0, &[][..]),
    };
    let away = match away {
        [] => String::new(),
        [first] => format!(" ({first:.100} does not)"),
        [first, rest @ ..] => format!(" ({first:.100} and {} more do not)", rest.len()),
    };
    Finding::warning(
        "ensemble",
        format!(
            "{odd} servers vote, and that they serve is visible for {serving} of them{away}: if one \
             is down, the next failure may stop all locks"
        ),
        "start the servers that are down, and reconnect those in read-only mode with the others; if \
         all serve, name each of them in the URL, and allow the command without TLS \
         (4lw.commands.whitelist=srvr,conf)",
    )
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

    fn seen(serving: usize, away: &[&str]) -> SeenVoters {
        SeenVoters { serving, away: away.iter().map(|name| (*name).to_owned()).collect() }
    }

    #[test]
    fn client_addresses_are_read_from_the_shared_configuration() {
        let config = "server.1=z1:2888:3888:participant;0.0.0.0:2181\n\
                      server.2=[fd00::2]:2888:3888|10.0.0.2:2888:3888:participant;[::]:2182\n\
                      server.3=10.0.0.3:2888:3888;10.1.0.3:2181\n\
                      server.4=10.0.0.4:2888:3888:participant;2181\n\
                      server.5=10.0.0.5:2888:3888:participant\n\
                      server.6=10.0.0.6:2888:3888:observer;0.0.0.0:2181\nversion=0";
        let expected = [
            Some("z1:2181"),
            Some("[fd00::2]:2182"),
            Some("10.1.0.3:2181"),
            Some("10.0.0.4:2181"),
            None,
        ];
        assert_eq!(voters(config), expected.map(|address| address.map(str::to_owned)));
        assert_eq!(voters(""), []);
    }

    #[test]
    fn each_server_is_counted_once_and_observers_are_not() {
        let (up, down, observer) = (Some(true), Some(false), None);
        let host = |name: &str, of: &[(&str, Option<bool>)]| {
            let of = of.iter().map(|(address, state)| (address.parse().unwrap(), *state));
            (name.to_owned(), of.collect::<Vec<_>>())
        };
        let all = vec![
            host("z1:1", &[("10.0.0.1:1", up), ("[fd00::1]:1", up)]),
            host("10.0.0.1:1", &[("10.0.0.1:1", up)]),
            host("z2:1", &[("10.0.0.2:1", down), ("[fd00::2]:1", down)]),
            host("z3:1", &[("10.0.0.3:1", up), ("[fd00::3]:1", down)]),
            host("z4:1", &[("10.0.0.4:1", observer)]),
            host("unknown:1", &[]),
        ];
        assert_eq!(SeenVoters::of(all), seen(2, &["z2:1", "unknown:1"]));
        assert_eq!(serves(Some("Mode: follower\n")), up);
        assert_eq!(serves(Some("Mode: observer\n")), observer);
        let read_only = "READ-ONLY mode; serving only read-only clients\nMode: read-only\n";
        for answer in [
            None,
            Some("srvr is not executed"),
            Some("This ZooKeeper instance is not"),
            Some(read_only),
        ] {
            assert_eq!(serves(answer), down);
        }
    }

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
            (ensemble(Some(3), Some(&seen(3, &[]))), Level::Fine, ""),
            (ensemble(Some(3), Some(&seen(3, &["other-name:2181"]))), Level::Fine, ""),
            (ensemble(Some(3), Some(&seen(2, &["z3:2181"]))), Level::Warning, "start"),
            (ensemble(Some(3), Some(&seen(1, &[]))), Level::Warning, "in the URL"),
            (ensemble(Some(3), None), Level::Warning, "srvr"),
            (ensemble(Some(1), Some(&seen(1, &[]))), Level::Warning, "three"),
            (ensemble(Some(4), Some(&seen(4, &[]))), Level::Warning, "three"),
            (ensemble(None, None), Level::Warning, "zoo.cfg"),
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
        let read_only = srvr.replace("leader", "read-only");
        assert_eq!(version(Some(&read_only)).found, "ZooKeeper 3.8.4, read-only");
    }
}
