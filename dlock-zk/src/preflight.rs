//! The check at a connect.
//!
//! It tries all operations that locks need, so that a missing right is reported at once. It also
//! reads the servers' version and settings, which ZooKeeper's protocol does not report: the
//! four-letter commands `srvr` and `conf` do, on a separate connection without TLS. Servers allow
//! the first one by default.

use std::{io, sync::Arc, time::Duration};

use dlock_core::{ClaimId, ConfigIssue, Error, ErrorKind, Guarantees, session::guarantees};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};
use zookeeper_client::{CreateMode, Error as ZkError};

use crate::{
    acl::{Acl, CREATE, DELETE, READ, WRITE},
    config::ZkConfig,
    connect::entries,
    error::{explain, no_answer},
    session::Session,
};

/// How long to wait for a server's settings.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// The oldest server that the tests and the documents cover.
const OLDEST: [u32; 3] = [3, 5, 3];
/// The feature that older servers lack, or have in alpha versions only.
pub(crate) const LACKING: &str = "stable container nodes";

/// Checks that the location in the URL can store locks, and returns the guarantees. Warnings about
/// the servers follow in the background.
pub(crate) async fn preflight(session: &Arc<Session>) -> Result<Guarantees, Error> {
    // A server that stops answering must not block the application.
    let tried = timeout(session.timeout, try_location(session)).await;
    tried.unwrap_or_else(|_| Err(no_answer()))?;
    let (config, session_timeout) = (session.config.clone(), session.timeout);
    session.background(async move {
        warn_if_short(&config, session_timeout).await;
        warn_if_old(&config).await;
    });
    Ok(guarantees(session.servers.voters.unwrap_or(1)))
}

/// Creates the root and a node in it, as every lock does. So missing rights, a missing chroot and a
/// read-only server are reported now.
async fn try_location(session: &Session) -> Result<(), Error> {
    let client = &session.client;
    if !session.has_node("/").await.map_err(explain)? {
        return Err(Error::config(
            ConfigIssue::Access,
            format!(
                "the chroot {} does not exist: create it, or use dlock.root, which dlock creates",
                session.config.chroot
            ),
        ));
    }
    // Checked before anything is created with that ACL: no client could use or remove it.
    if let Some(right) = session.acl.missing() {
        return Err(lacks(right));
    }
    let root = session.root();
    let is_new = !root.is_empty() && !session.has_node(root).await.map_err(explain)?;
    let tried = try_root(session).await;
    if tried.is_err() && is_new {
        // A root with this ACL would lock out all users without rights in it. If other clients use
        // it already, it has children, and stays.
        let _ = session.insist(|| client.delete(root, None)).await;
    }
    tried
}

/// Creates a node in the root, and deletes it, which may be forbidden.
async fn try_root(session: &Session) -> Result<(), Error> {
    let epoch = session.begin_epoch().await.map_err(explain)?;
    try_acl(session).await?;
    session.delete_path(&epoch).await.map_err(explain)?;
    session.epoch().await.map_err(explain).map(drop)
}

/// Performs the operations of a lock in a directory with the ACL of the URL, and leaves nothing
/// behind.
///
/// The root may be older and have another ACL, and the right to delete a node belongs to its
/// directory.
async fn try_acl(session: &Session) -> Result<(), Error> {
    if !matches!(session.acl, Acl::Entries(_)) {
        // The other kinds of ACL give every right.
        return Ok(());
    }
    // The directory of a lock can't have this name.
    let dir = format!("{}/%probe-{}", session.root(), ClaimId::random());
    session.read(|| session.make_dir(&dir)).await.map_err(explain)?;
    let tried = try_rights(session, &dir).await;
    // Without the right to delete, the node is removed with the session, and then the servers
    // remove the directory.
    let _ = session.insist(|| session.client.delete(&dir, None)).await;
    tried
}

async fn try_rights(session: &Session, dir: &str) -> Result<(), Error> {
    let client = &session.client;
    let node = format!("{dir}/node");
    let ephemeral = CreateMode::Ephemeral.with_acls(session.acl.for_driver());
    match session.insist(|| client.create(&node, b"", &ephemeral)).await {
        (Ok(_), _) | (Err(ZkError::NodeExists), true) => {}
        (Err(error), _) => return Err(without(CREATE, error)),
    }
    let read = async {
        session.read(|| client.list_children(dir)).await?;
        session.read(|| client.get_data(&node)).await
    };
    let read = read.await.map(drop);
    let written = session.insist(|| client.set_data(&node, b"", None)).await.0.map(drop);
    // Even if another step has failed.
    let deleted = session.delete_path(&node).await.map(drop);
    read.map_err(|error| without(READ, error))?;
    written.map_err(|error| without(WRITE, error))?;
    deleted.map_err(|error| without(DELETE, error))
}

/// Returns the error to show to people for this missing right.
fn without(right: &str, error: ZkError) -> Error {
    match error {
        ZkError::NoAuth => lacks(right).with_source(error),
        other => explain(other),
    }
}

fn lacks(right: &str) -> Error {
    Error::config(
        ConfigIssue::Access,
        format!(
            "dlock.acl does not give this client the right to {right}: give every program that \
             shares the locks the rights create, read, write and delete (crwd)"
        ),
    )
}

/// Returns the version that a server reports, if it is too old.
pub(crate) fn too_old(srvr: Option<&str>) -> Option<&str> {
    let version = field(srvr, "Zookeeper version:")?;
    let mut numbers = version.split('.').map(str::parse::<u32>);
    let mut next = || numbers.next()?.ok();
    let found = [next()?, next()?, next().unwrap_or(0)];
    (found < OLDEST).then_some(version)
}

/// Returns the error of a connect, with its reason if a four-letter command shows it: the version
/// of the server, or its limit of connections.
pub(crate) async fn explained(error: Error, config: &ZkConfig) -> Error {
    match error.kind() {
        ErrorKind::Unsupported => {}
        ErrorKind::Unavailable => return closed(error, config).await,
        _ => return error,
    }
    let answer = ask_any(config, "srvr").await;
    match too_old(answer.as_deref()) {
        None => error,
        Some(version) => Error::new(
            ErrorKind::Unsupported,
            format!(
                "the server is ZooKeeper {version:.40}, which lacks {LACKING}: dlock needs ZooKeeper \
                 3.5.3 or later"
            ),
        )
        .with_source(error),
    }
}

/// Names the limit of connections, if a server closes a new one without a word.
async fn closed(error: Error, config: &ZkConfig) -> Error {
    // A server that does not permit the command says so.
    let answer = timeout(ANSWER_TIMEOUT, ask_any(config, "ruok")).await;
    match answer {
        Ok(Some(text)) if text.is_empty() => Error::new(
            ErrorKind::Unavailable,
            "the server closes new connections at once: check that it is ZooKeeper, and raise \
             maxClientCnxns in its zoo.cfg if this machine has that many connections already",
        )
        .with_certainty(error.certainty())
        .with_source(error),
        _ => error,
    }
}

/// Logs a warning about a server that is too old but works so far.
async fn warn_if_old(config: &ZkConfig) {
    let answer = ask_any(config, "srvr").await;
    if let Some(version) = too_old(answer.as_deref()) {
        tracing::warn!(
            target: "dlock",
            store = config.store(),
            version,
            "server older than supported: upgrade it to ZooKeeper 3.5.3 or later"
        );
    }
}

/// Logs a warning if the session timeout is not above `syncLimit` times `tickTime`. It does so only
/// if the servers show these settings (with the four-letter command `conf`, which they have to
/// allow).
///
/// A follower that is partitioned from its leader continues to serve its clients for that long. A
/// client behind it learns of the end of its session only from its own clock.
async fn warn_if_short(config: &ZkConfig, session_timeout: Duration) {
    let Some(settings) = ask_any(config, "conf").await else { return };
    match longest_isolation(&settings) {
        Some(isolated) if session_timeout <= isolated => tracing::warn!(
            target: "dlock",
            store = config.store(),
            session_timeout = ?session_timeout,
            sync_limit = ?isolated,
            "session timeout not above syncLimit x tickTime: a holder connected to a partitioned \
             server relies on its own clock alone; raise dlock.session_timeout, or lower the \
             servers' syncLimit"
        ),
        Some(_) => {}
        None => {
            tracing::debug!(target: "dlock", store = config.store(), "server does not report its settings")
        }
    }
}

/// Returns the answer of one of the servers to a four-letter command: all servers of an ensemble
/// have the same settings. Returns `None` if no server answers, and with TLS.
pub(crate) async fn ask_any(config: &ZkConfig, word: &str) -> Option<String> {
    if config.tls.is_some() {
        return None;
    }
    for host in entries(&config.hosts).await {
        let answer = ask_one(&host, word).await;
        if answer.is_some() {
            return answer;
        }
    }
    None
}

/// Returns the answer of one server to a four-letter command, without TLS.
pub(crate) async fn ask_one(host: &str, word: &str) -> Option<String> {
    timeout(ANSWER_TIMEOUT, ask(host, word)).await.ok()?.ok()
}

/// Returns the text behind this name in a server's answer, up to the next comma or hyphen.
pub(crate) fn field<'a>(answer: Option<&'a str>, name: &str) -> Option<&'a str> {
    let line = answer?.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().split([',', '-']).next()
}

async fn ask(host: &str, word: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect(host).await?;
    stream.write_all(word.as_bytes()).await?;
    let mut text = Vec::new();
    match stream.take(64 * 1024).read_to_end(&mut text).await {
        // The server has closed the connection before it read the command.
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {}
        read => drop(read?),
    }
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// Returns how long a server continues to serve without its leader. `None` if it has no leader or
/// does not report it.
pub(crate) fn longest_isolation(settings: &str) -> Option<Duration> {
    let value = |name: &str| -> Option<u64> {
        let line = settings.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='))?;
        line.trim().parse().ok()
    };
    let (tick, limit) = (value("tickTime")?, value("syncLimit")?);
    Some(Duration::from_millis(tick.checked_mul(limit)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_servers_before_3_5_3_are_too_old() {
        let old = |version: &str| {
            let answer = format!("Zookeeper version: {version}, built on 2019\nMode: standalone\n");
            too_old(Some(&answer)).map(str::to_owned)
        };
        for (version, expected) in [
            ("3.4.14-4c25d480e66aadd371de8bd2fd8da255ac140bcf", Some("3.4.14")),
            ("3.5.2-alpha-1750793", Some("3.5.2")),
            ("3.5.3-beta-8ce24f9e675cbefffb8f21a47e06b42864475a60", None),
            ("3.8.4-9316c2a7a97e1666d8f4593f34dd6fc36ecc436c", None),
            ("4.0", None),
            ("${mvngit.commit}", None),
        ] {
            assert_eq!(old(version).as_deref(), expected, "{version}");
        }
        assert_eq!(too_old(Some("srvr is not executed")), None);
        assert_eq!(too_old(None), None);
    }

    #[test]
    fn the_times_are_read_from_the_settings() {
        let settings = "clientPort=2181\ntickTime=2000\ninitLimit=10\nsyncLimit=5\n";
        assert_eq!(longest_isolation(settings), Some(Duration::from_secs(10)));
        assert_eq!(longest_isolation("clientPort=2181\ntickTime=2000\n"), None);
        assert_eq!(
            longest_isolation("conf is not executed because it is not in the whitelist."),
            None
        );
    }
}
