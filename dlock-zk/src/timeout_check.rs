//! The check of the session timeout against the servers' own settings.

use std::{io::ErrorKind, time::Duration};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::{config::ZkConfig, resolve::entries};

/// How long to wait for a server's settings.
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// Logs a warning if the session timeout is not above `syncLimit` times `tickTime`. It does so only
/// if the servers show these settings (with the four-letter command `conf`, which they have to
/// allow).
///
/// A follower that is partitioned from its leader continues to serve its clients for that long. A
/// client behind it learns of the end of its session only from its own clock.
pub(crate) async fn warn_if_short(config: &ZkConfig, timeout: Duration) {
    let Some(settings) = ask_any(config, "conf").await else { return };
    match longest_isolation(&settings) {
        Some(isolated) if timeout <= isolated => tracing::warn!(
            target: "dlock",
            store = config.store(),
            session_timeout = ?timeout,
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
        if let Ok(Ok(text)) = tokio::time::timeout(ANSWER_TIMEOUT, ask(&host, word)).await {
            return Some(text);
        }
    }
    None
}

/// Returns the text behind this name in a server's answer, up to the next comma or hyphen.
pub(crate) fn field<'a>(answer: Option<&'a str>, name: &str) -> Option<&'a str> {
    let line = answer?.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().split([',', '-']).next()
}

async fn ask(host: &str, word: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(host).await?;
    stream.write_all(word.as_bytes()).await?;
    let mut text = Vec::new();
    match stream.take(64 * 1024).read_to_end(&mut text).await {
        // The server has closed the connection before it read the command.
        Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
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
