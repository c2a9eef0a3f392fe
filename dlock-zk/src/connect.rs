//! The connection to the servers.

use std::time::Duration;

use dlock_core::Error;
use tokio::runtime::Handle;
use zookeeper_client::{Client, Error as ZkError};

use crate::{
    config::ZkConfig,
    driver::Alive,
    error::{explain, is_over, is_unknown},
    resolve::entries,
};

/// The longest time until there is a session.
const LONGEST: Duration = Duration::from_secs(10);

/// Opens the connection, and a session on it.
pub(crate) async fn connect(
    config: &ZkConfig,
    timeout: Duration,
    runtime: &Handle,
) -> Result<(Client, Alive), Error> {
    let entries = match &config.tls {
        None => entries(&config.hosts).await,
        Some(_) => config.hosts.clone(),
    };
    let limit = timeout.min(LONGEST);
    let connector = Client::connector()
        .with_session_timeout(timeout)
        .with_connection_timeout(per_server(timeout, limit, entries.len()))
        .with_fail_eagerly();
    let cluster = config.cluster(&entries);
    let opening = async {
        let client = match &config.tls {
            None => connector.connect(&cluster).await.map_err(explain)?,
            Some(tls) => crate::tls::connect(connector, tls, &cluster).await?,
        };
        if let Some(login) = &config.login {
            // Not during the connect: a server with Netty, which every server with TLS uses, may
            // answer the credentials first, and the driver takes that for an invalid answer. At a
            // reconnect the driver sends them again on its own, and retries until it works.
            client.auth("digest", login.as_bytes()).await.map_err(explain)?;
        }
        Ok(client)
    };
    let late = |_| {
        let explain = if config.tls.is_some() { crate::tls::explain } else { explain };
        Err(explain(ZkError::Timeout))
    };
    let (opened, alive) = Alive::open(runtime.clone(), tokio::time::timeout(limit, opening)).await;
    Ok((opened.unwrap_or_else(late)?, alive))
}

/// Returns how long a server may stay silent, during a connect and later.
///
/// If a server goes silent when a renewal is due, a third of the session timeout is left of the lease.
/// An eighth is enough to notice that, and to pass over one more silent server. It is not less than a
/// second if possible, since a healthy server may pause for that long. At the start, each server gets
/// its turn before the `limit`.
fn per_server(timeout: Duration, limit: Duration, servers: usize) -> Duration {
    let servers = u32::try_from(servers).unwrap_or(u32::MAX).max(1);
    let least = (timeout / 5).min(Duration::from_secs(1));
    (timeout / 8).max(least).min(limit / servers.saturating_add(1)).max(Duration::from_millis(100))
}

/// The servers behind a session, as far as the client can see them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Servers {
    /// The number of voters. `None` if it is not visible.
    pub(crate) voters: Option<usize>,
    /// Whether there certainly is a single standalone server: no other server, such as an observer,
    /// serves its sessions or can be added.
    pub(crate) is_alone: bool,
}

/// Reads the configuration of the servers.
pub(crate) async fn servers(client: &Client) -> Result<Servers, Error> {
    let config = tokio::time::timeout(client.session_timeout(), client.get_config()).await;
    match config.unwrap_or(Err(ZkError::Timeout)) {
        Ok((config, _)) => Ok(Servers::read(&String::from_utf8_lossy(&config))),
        Err(error) if is_unknown(&error) || is_over(&error) => Err(explain(error)),
        Err(_) => Ok(Servers { voters: None, is_alone: false }),
    }
}

impl Servers {
    /// Parses the configuration that they share. A standalone server has none. A single voter may
    /// have observers, and more voters later.
    fn read(config: &str) -> Self {
        let servers = config.lines().filter(|line| line.starts_with("server."));
        let voters = servers.filter(|line| !line.contains(":observer")).count();
        Self { voters: Some(voters.max(1)), is_alone: config.trim().is_empty() }
    }
}

#[cfg(test)]
mod tests {
    use super::Servers;

    #[test]
    fn only_a_server_without_a_configuration_is_alone() {
        let one = "server.1=10.0.0.1:2888:3888:participant;0.0.0.0:2181\n";
        let observer = "server.2=10.0.0.2:2888:3888:observer;0.0.0.0:2181\n";
        let other = "server.3=10.0.0.3:2888:3888\n";
        let version = "version=0";
        for (config, voters, is_alone) in [
            (String::new(), 1, true),
            (format!("{one}{version}"), 1, false),
            (format!("{one}{observer}{version}"), 1, false),
            (format!("{one}{observer}{other}{version}"), 2, false),
            (version.to_owned(), 1, false),
        ] {
            let expected = Servers { voters: Some(voters), is_alone };
            assert_eq!(Servers::read(&config), expected, "{config}");
        }
    }
}
