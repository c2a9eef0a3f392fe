//! Who is the master: what the sentinels say.
//!
//! The protocol is that of <https://redis.io/docs/latest/develop/reference/sentinel-clients/>,
//! with two differences: all sentinels are asked at once, and the address that most of them name
//! counts, so that one sentinel that is cut off can't send a client to a deposed master; and they
//! are asked again every second, rather than subscribed to, so that there is one way to learn of
//! a failover.

use dlock_core::{Error, ErrorKind};
use futures_util::future::join_all;
use redis::{RedisError, Value, aio::MultiplexedConnection};

use super::open;
use crate::config::{RedisConfig, Topology};

/// Connections to the sentinels.
pub(super) struct Sentinels {
    connections: Vec<Option<MultiplexedConnection>>,
}

impl Sentinels {
    pub(super) fn new(config: &RedisConfig) -> Self {
        Self { connections: vec![None; config.addresses.len()] }
    }

    /// The master's address.
    pub(super) async fn master(&mut self, config: &RedisConfig) -> Result<String, Error> {
        let Topology::Sentinel(name) = &config.topology else {
            return Ok(config.addresses.first().cloned().unwrap_or_default());
        };
        let asked = self.connections.iter_mut().zip(&config.addresses);
        let answers =
            join_all(asked.map(|(connection, address)| async {
                ask(connection, config, address, name).await
            }))
            .await;
        let mut votes: Vec<(usize, String)> = Vec::new();
        let (mut failed, mut unknown) = (None, false);
        for answer in answers {
            match answer {
                Ok(Some(address)) => match votes.iter_mut().find(|(_, known)| *known == address) {
                    Some((count, _)) => *count += 1,
                    None => votes.push((1, address)),
                },
                Ok(None) => unknown = true,
                Err(error) => failed = Some(error),
            }
        }
        if let Some((_, address)) = votes.into_iter().max_by_key(|(count, _)| *count) {
            return Ok(address);
        }
        let store = config.store();
        match failed {
            _ if unknown => Err(Error::new(
                ErrorKind::Unavailable,
                format!("the sentinels know no master {name:?}: see SENTINEL MASTERS for its name"),
            )
            .with_store(&store)),
            Some(error) => Err(open::refused(error, &store)),
            None => Err(Error::new(ErrorKind::Unavailable, "no sentinel answers")),
        }
    }
}

async fn ask(
    connection: &mut Option<MultiplexedConnection>,
    config: &RedisConfig,
    address: &str,
    name: &str,
) -> Result<Option<String>, RedisError> {
    let mut sentinel = match connection.take() {
        Some(open) => open,
        None => {
            // A sentinel has no databases.
            let config = RedisConfig { database: 0, ..config.clone() };
            open::connection(&config, address, &config.sentinel_login, |_| {}).await?
        }
    };
    let mut question = redis::cmd("SENTINEL");
    question.arg("GET-MASTER-ADDR-BY-NAME").arg(name);
    let answer: Value = question.query_async(&mut sentinel).await?;
    *connection = Some(sentinel);
    let Value::Array(parts) = answer else { return Ok(None) };
    let [Value::BulkString(host), Value::BulkString(port)] = parts.as_slice() else {
        return Ok(None);
    };
    let (host, port) = (String::from_utf8_lossy(host), String::from_utf8_lossy(port));
    Ok(Some(if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }))
}
