//! The check for servers that are too old.
//!
//! ZooKeeper's protocol does not report the server's version. The four-letter command `srvr` does.
//! Servers allow it by default. It uses a separate connection without TLS.

use dlock_core::{Error, ErrorKind};

use crate::{
    config::ZkConfig,
    timeout_check::{ANSWER_TIMEOUT, ask_any, field},
};

/// The oldest server that the tests and the documents cover.
const OLDEST: [u32; 3] = [3, 5, 3];
/// The feature that older servers lack, or have in alpha versions only.
pub(crate) const LACKING: &str = "stable container nodes";

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
pub(crate) async fn named(error: Error, config: &ZkConfig) -> Error {
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
    let answer = tokio::time::timeout(ANSWER_TIMEOUT, ask_any(config, "ruok")).await;
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
pub(crate) async fn warn(config: &ZkConfig) {
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
}
