//! Who is the master: what the sentinels say.
//!
//! The protocol is that of <https://redis.io/docs/latest/develop/reference/sentinel-clients/>,
//! with two differences: all sentinels are asked at once, and the address that most of them name
//! counts, so that one sentinel that is cut off can't send a client to a deposed master; and they
//! are asked again every second, rather than subscribed to, so that there is one way to learn of
//! a failover.

use std::time::Duration;

use dlock_core::{Certainty, Error, ErrorKind};
use futures_util::{StreamExt, stream::FuturesUnordered};
use redis::{RedisError, Value, aio::MultiplexedConnection};
use tokio::time::timeout;

use super::open;
use crate::config::{RedisConfig, Topology};

/// Once most sentinels agree, the next one has this long, or it counts as one that is away.
const GRACE: Duration = Duration::from_millis(300);

/// Connections to the sentinels.
pub(super) struct Sentinels {
    connections: Vec<Option<MultiplexedConnection>>,
}

/// What the sentinels have said so far.
#[derive(Default)]
struct Votes {
    masters: Vec<(usize, String)>,
    /// How many know the name of no master.
    strangers: usize,
    failed: Option<RedisError>,
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
        let all = config.addresses.len();
        let asked = self.connections.iter_mut().zip(&config.addresses);
        let mut asking: FuturesUnordered<_> =
            asked.map(|(connection, address)| ask(connection, config, address, name)).collect();
        let mut votes = Votes::default();
        loop {
            let next = match votes.leader(all) {
                // One that hangs must not hold up who looks for the new master.
                Some(_) => timeout(GRACE, asking.next()).await.unwrap_or(None),
                None => asking.next().await,
            };
            match next {
                Some(answer) => votes.count(answer),
                None => return votes.result(name, &config.store()),
            }
        }
    }
}

impl Votes {
    fn count(&mut self, answer: Result<Option<String>, RedisError>) {
        match answer {
            Ok(Some(address)) => {
                match self.masters.iter_mut().find(|(_, known)| *known == address) {
                    Some((count, _)) => *count += 1,
                    None => self.masters.push((1, address)),
                }
            }
            Ok(None) => self.strangers += 1,
            Err(error) => self.failed = Some(error),
        }
    }

    /// The address that more than half of so many name.
    fn leader(&self, of: usize) -> Option<&str> {
        let leader = self.masters.iter().find(|(count, _)| 2 * count > of);
        leader.map(|(_, address)| address.as_str())
    }

    /// The address that most of those name that know one.
    fn result(self, name: &str, store: &str) -> Result<String, Error> {
        let answers = self.masters.iter().map(|(count, _)| count).sum();
        if let Some(address) = self.leader(answers) {
            return Ok(address.to_owned());
        }
        let unavailable = |what: String| {
            Error::new(ErrorKind::Unavailable, what)
                .with_certainty(Certainty::NotApplied)
                .during("connect")
                .with_store(store)
        };
        if !self.masters.is_empty() {
            return Err(unavailable(format!(
                "the sentinels name different masters of {name:?}: wait until they agree, and see \
                 that they reach each other"
            )));
        }
        if self.strangers > 0 {
            return Err(unavailable(format!(
                "the sentinels know no master {name:?}: see SENTINEL MASTERS for its name"
            )));
        }
        let Some(error) = self.failed else {
            return Err(unavailable("the URL names no sentinel".to_owned()));
        };
        let explained = open::refused(error.clone(), store);
        match explained.is_transient() {
            true => Err(unavailable(format!("no sentinel answers: see that they run ({error})"))
                .with_source(error)),
            false => Err(explained),
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

#[cfg(test)]
mod tests {
    use super::*;

    fn votes(named: &[&str]) -> Votes {
        let mut votes = Votes::default();
        for name in named {
            votes.count(Ok((*name != "?").then(|| (*name).to_owned())));
        }
        votes
    }

    #[test]
    fn a_sentinel_that_is_cut_off_is_outvoted() {
        assert_eq!(votes(&["b", "a", "b"]).result("m", "s").unwrap(), "b");
        assert_eq!(votes(&["b", "?", "?"]).result("m", "s").unwrap(), "b");
        assert_eq!(votes(&["b", "a", "b"]).leader(3), Some("b"));
        assert_eq!(votes(&["b", "a"]).leader(3), None);
    }

    #[test]
    fn no_answer_is_an_error_with_a_remedy() {
        for (named, remedy) in
            [(&["a", "b"][..], "wait until they agree"), (&["?"], "SENTINEL MASTERS"), (&[], "URL")]
        {
            let error = votes(named).result("m", "s").unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unavailable);
            assert!(error.to_string().contains(remedy), "{error}");
        }
    }
}
