//! The address of the master, according to the sentinels.
//!
//! The protocol is that of <https://redis.io/docs/latest/develop/reference/sentinel-clients/>, with
//! two differences. First, all sentinels are asked at once, and the newest failover that any of
//! them knows counts, by its config epoch. So a sentinel with old data can't send a client to a
//! deposed master, which may have restarted empty. That also holds if the sentinels that know the
//! failover stop answering before the others have learned of it. Second, dlock asks the sentinels every second
//! and does not subscribe to them, so that there is only one way to learn of a failover.

use std::time::Duration;

use dlock_core::{Certainty, Clock, Error, ErrorKind, Instant};
use futures_util::{StreamExt, stream::FuturesUnordered};
use redis::{RedisError, RedisResult, Value, aio::MultiplexedConnection};
use tokio::time::timeout;

use super::open;
use crate::config::{RedisConfig, Topology, with_port};

/// After a majority of sentinels has answered, how long to wait for each further one.
const GRACE: Duration = Duration::from_millis(300);

/// How long a failover counts that was reported once. Sentinels tell each other of it every 2 s. The
/// epochs of sentinels that were set up anew begin again, so it does not count for ever.
const REMEMBERED: Duration = Duration::from_secs(10);

/// Connections to the sentinels.
pub(super) struct Sentinels {
    connections: Vec<Option<MultiplexedConnection>>,
    /// The newest failover, and when it was reported last.
    newest: Option<(Named, Instant)>,
}

/// The answers of the sentinels so far.
#[derive(Default)]
struct Votes {
    answers: usize,
    newest: Option<Named>,
    /// The number of sentinels that know no master of this name.
    strangers: usize,
    failed: Option<RedisError>,
}

impl Sentinels {
    pub(super) fn new(config: &RedisConfig) -> Self {
        Self { connections: vec![None; config.addresses.len()], newest: None }
    }

    /// Returns the master's address.
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
            let next = match votes.enough(all) {
                // A sentinel that hangs must not delay the move to a new master.
                true => timeout(GRACE, asking.next()).await.unwrap_or(None),
                false => asking.next().await,
            };
            match next {
                Some(answer) => votes.count(answer),
                None => {
                    votes.remember(&mut self.newest, Clock::Boot.now());
                    return votes.result(name, &config.store());
                }
            }
        }
    }
}

impl Votes {
    fn count(&mut self, answer: Result<Option<Named>, RedisError>) {
        match answer {
            Ok(Some(named)) => {
                self.answers += 1;
                if self.newest.as_ref().is_none_or(|newest| newest.epoch < named.epoch) {
                    self.newest = Some(named);
                }
            }
            Ok(None) => self.strangers += 1,
            Err(error) => self.failed = Some(error),
        }
    }

    /// Keeps to a newer failover that was reported shortly before.
    fn remember(&mut self, known: &mut Option<(Named, Instant)>, now: Instant) {
        let Some(newest) = &mut self.newest else { return };
        match known {
            Some((before, at)) if before.epoch > newest.epoch && now.since(*at) < REMEMBERED => {
                newest.clone_from(before);
            }
            _ => *known = Some((newest.clone(), now)),
        }
    }

    /// Returns whether more than half of `of` sentinels have answered.
    const fn enough(&self, of: usize) -> bool {
        2 * self.answers > of
    }

    /// Returns the address of the newest failover.
    fn result(self, name: &str, store: &str) -> Result<String, Error> {
        if let Some(newest) = self.newest {
            return Ok(newest.address);
        }
        let unavailable = |what: String| {
            Error::new(ErrorKind::Unavailable, what)
                .with_certainty(Certainty::NotApplied)
                .during("connect")
                .with_store(store)
        };
        if self.strangers > 0 {
            return Err(unavailable(format!(
                "the sentinels have no master {name:?}: check its name with SENTINEL MASTERS"
            )));
        }
        let Some(error) = self.failed else {
            return Err(unavailable(
                "the URL names no sentinel: write redis+sentinel://host/mymaster".to_owned(),
            ));
        };
        let explained = open::refused(error.clone(), store);
        match explained.is_transient() {
            true => Err(unavailable(format!("no sentinel answers: check that they run ({error})"))
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
) -> Result<Option<Named>, RedisError> {
    let mut sentinel = match connection.take() {
        Some(open) => open,
        None => {
            // A sentinel has no databases.
            let config = RedisConfig { database: 0, ..config.clone() };
            open::connection(&config, address, &config.sentinel_login, |_| {}).await?
        }
    };
    let mut questions = redis::pipe();
    questions.cmd("SENTINEL").arg("MASTER").arg(name);
    questions.cmd("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME").arg(name).ignore_errors();
    let answers = sentinel.send_packed_commands(&questions, 0, questions.len()).await?;
    let [master, address] = <[Value; 2]>::try_from(answers).unwrap_or([Value::Nil, Value::Nil]);
    match master.extract_error() {
        Err(error) if !error.to_string().contains("No such master") => Err(error),
        master => {
            *connection = Some(sentinel);
            Ok(master.ok().and_then(|master| named(&master, &address)))
        }
    }
}

/// The answers of a sentinel about a master.
pub(crate) struct Report {
    pub(crate) master: Value,
    /// The replicas, or the error of a sentinel that does not tell this user.
    pub(crate) replicas: RedisResult<Value>,
    /// Fails if too few sentinels can be reached to fail over.
    pub(crate) has_quorum: RedisResult<Value>,
}

/// Asks a sentinel about a master, over a new connection.
pub(crate) async fn report(
    config: &RedisConfig,
    address: &str,
    name: &str,
) -> Result<Report, RedisError> {
    let config = RedisConfig { database: 0, ..config.clone() };
    let mut sentinel = open::connection(&config, address, &config.sentinel_login, |_| {}).await?;
    let mut ask = async |what: &str| {
        let mut question = redis::cmd("SENTINEL");
        sentinel.send_packed_command(question.arg(what).arg(name)).await?.extract_error()
    };
    Ok(Report {
        master: ask("MASTER").await?,
        replicas: ask("REPLICAS").await,
        has_quorum: ask("CKQUORUM").await,
    })
}

/// A master, and the number of the failover that made it one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Named {
    pub(crate) epoch: u64,
    pub(crate) address: String,
}

/// Reads the answers to `SENTINEL MASTER`, for the epoch, and to
/// `SENTINEL GET-MASTER-ADDR-BY-NAME`.
///
/// The address in the first answer is not used. For a second or more, from the promotion of a
/// replica to the end of a failover, the sentinel that leads the failover reports the new epoch and
/// the old address.
pub(crate) fn named(master: &Value, address: &Value) -> Option<Named> {
    let (Value::Map(fields), Value::Array(address)) = (master, address) else { return None };
    let epoch = fields.iter().find_map(|(name, value)| match (name, value) {
        (Value::BulkString(name), Value::BulkString(value)) if name == b"config-epoch" => {
            std::str::from_utf8(value).ok()?.parse().ok()
        }
        _ => None,
    })?;
    let [Value::BulkString(host), Value::BulkString(port)] = address.as_slice() else {
        return None;
    };
    let (host, port) = (String::from_utf8_lossy(host), String::from_utf8_lossy(port));
    Some(Named { epoch, address: with_port(&host, port) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn votes(said: &[Option<(u64, &str)>]) -> Votes {
        let mut votes = Votes::default();
        for named in said {
            votes.count(Ok(named.map(|(epoch, at)| Named { epoch, address: at.to_owned() })));
        }
        votes
    }

    #[test]
    fn the_newest_failover_counts_even_if_one_sentinel_knows_it() {
        let said = [Some((1, "a")), Some((2, "b")), Some((1, "a"))];
        assert_eq!(votes(&said).result("m", "s").unwrap(), "b");
        assert_eq!(votes(&[Some((1, "b")), None, None]).result("m", "s").unwrap(), "b");
        assert!(votes(&said[..2]).enough(3) && !votes(&said[..1]).enough(3));
    }

    #[test]
    fn a_failover_is_remembered_until_all_sentinels_must_know_it() {
        let at = |seconds: u64| Instant::from_nanos(seconds * 1_000_000_000);
        let mut known = None;
        let mut ask = |said: &[Option<(u64, &str)>], seconds| {
            let mut votes = votes(said);
            votes.remember(&mut known, at(seconds));
            votes.result("m", "s").ok()
        };
        assert_eq!(ask(&[Some((1, "a")), Some((2, "b"))], 1).as_deref(), Some("b"));
        assert_eq!(ask(&[Some((1, "a"))], 10).as_deref(), Some("b"), "one is silent");
        assert_eq!(ask(&[], 10), None, "all are silent");
        assert_eq!(ask(&[Some((1, "a"))], 11).as_deref(), Some("a"), "they were set up anew");
        assert_eq!(ask(&[Some((3, "c"))], 12).as_deref(), Some("c"));
    }

    /// The answer of a sentinel that leads a failover, before the last replica follows the new
    /// master.
    #[test]
    fn the_address_is_that_of_the_promoted_replica() {
        let text = |text: &str| Value::BulkString(text.into());
        let fields = [("ip", "10.0.0.1"), ("port", "1"), ("config-epoch", "7")];
        let master = Value::Map(fields.map(|(name, value)| (text(name), text(value))).into());
        let address = Value::Array(vec![text("10.0.0.2"), text("2")]);
        let promoted = Named { epoch: 7, address: "10.0.0.2:2".to_owned() };
        assert_eq!(named(&master, &address), Some(promoted));
        assert_eq!(named(&master, &Value::Nil), None);
    }

    #[test]
    fn no_answer_is_an_error_with_a_remedy() {
        for (said, remedy) in [(&[None][..], "SENTINEL MASTERS"), (&[], "URL")] {
            let error = votes(said).result("m", "s").unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unavailable);
            assert!(error.to_string().contains(remedy), "{error}");
        }
    }
}
