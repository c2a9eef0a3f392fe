//! The way to the servers.

use std::time::Duration;

use dlock_core::Error;
use zookeeper_client::{Client, Error as ZkError};

use crate::{
    config::ZkConfig,
    error::{explain, is_over, is_unknown},
};

/// Opens the connection.
pub(crate) async fn connect(config: &ZkConfig, timeout: Duration) -> Result<Client, Error> {
    let connector = Client::connector()
        .with_session_timeout(timeout)
        .with_connection_timeout(timeout / 5)
        .with_fail_eagerly();
    let cluster = config.cluster();
    let opening = async {
        let client = match &config.tls {
            None => connector.connect(&cluster).await.map_err(explain)?,
            Some(tls) => crate::tls::connect(connector, tls, &cluster).await?,
        };
        if let Some(login) = &config.login {
            // Not with the connection: a server with Netty, as all with TLS, may answer to the
            // credentials first, which the driver takes for nonsense. It shows them again when it
            // connects again, and then tries until it works.
            client.auth("digest", login.as_bytes()).await.map_err(explain)?;
        }
        Ok(client)
    };
    let limit = timeout.min(Duration::from_secs(10));
    let late = |_| {
        let explain = if config.tls.is_some() { crate::tls::explain } else { explain };
        Err(explain(ZkError::Timeout))
    };
    tokio::time::timeout(limit, opening).await.unwrap_or_else(late)
}

/// How many servers decide together; `None` where that can't be seen.
pub(crate) async fn members(client: &Client) -> Result<Option<usize>, Error> {
    let config = tokio::time::timeout(client.session_timeout(), client.get_config()).await;
    match config.unwrap_or(Err(ZkError::Timeout)) {
        Ok((config, _)) => {
            let config = String::from_utf8_lossy(&config).into_owned();
            let voters = config
                .lines()
                .filter(|line| line.starts_with("server.") && !line.contains(":observer"));
            Ok(Some(voters.count().max(1)))
        }
        Err(error) if is_unknown(&error) || is_over(&error) => Err(explain(error)),
        Err(_) => Ok(None),
    }
}
