//! The baselines of Redis: the cost of a minimal lock with the bare driver.
//!
//! `SET key id NX PX 30000` acquires it, and a script releases it: the script deletes the key if it
//! still has the id. It has no queue, no token, no renewal and no retry. A variant also
//! [reads](RedisBaselineLock::with_look) a token with one more `GET`, which is the minimum for a
//! lock with a token and plain commands. dlock's scripts do the same and also compare the time with
//! a deadline, which plain commands can't do.

use std::time::Duration;

use futures_util::future::try_join_all;
use redis::{
    AsyncConnectionConfig, Client, Cmd, IntoConnectionInfo, ProtocolVersion, Value,
    aio::MultiplexedConnection,
};

use super::{
    Own,
    once::{self, Once},
};
use crate::{
    Failure,
    subject::{Lock, Subject, Want, Witness},
};

/// The token that is read.
const SHOWN: &[u8] = b"1795554668339239";

const RELEASE: &str = "\
if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end
return 0";

/// Returns the bare driver's client, with the settings that make it fast.
pub(crate) fn client(url: &str) -> Result<Client, Failure> {
    let info = url.into_connection_info()?;
    let tcp = info.tcp_settings().clone().set_nodelay(true);
    let redis = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
    Ok(Client::open(info.set_tcp_settings(tcp).set_redis_settings(redis))?)
}

/// Returns the configuration of its connections.
pub(crate) fn config() -> AsyncConnectionConfig {
    AsyncConnectionConfig::new()
        .set_pipeline_buffer_size(1024)
        .set_response_timeout(Some(Duration::from_secs(10)))
}

/// Opens a connection that all tasks share.
pub(crate) async fn connect(url: &str) -> Result<MultiplexedConnection, Failure> {
    Ok(client(url)?.get_multiplexed_async_connection_with_config(&config()).await?)
}

/// A lock that consists only of the baseline.
#[derive(Clone)]
struct RedisBaselineLock {
    connection: MultiplexedConnection,
    release: String,
    key: String,
    id: String,
    shown: Option<String>,
}

impl RedisBaselineLock {
    /// Returns a lock on this connection.
    pub(crate) async fn new(
        mut connection: MultiplexedConnection,
        name: &str,
    ) -> Result<Self, Failure> {
        let load = redis::cmd("SCRIPT").arg("LOAD").arg(RELEASE).to_owned();
        let release = load.query_async(&mut connection).await?;
        // As long as the keys and ids of a real lock.
        let id = format!("0123456789abcdef:{name}");
        Ok(Self { connection, release, key: format!("baseline:{{{name}}}"), id, shown: None })
    }

    /// Makes the lock read a token too, in one message with the `SET`.
    async fn with_look(mut self) -> Result<Self, Failure> {
        let shown = format!("{}:F", self.key);
        let mut set = redis::cmd("SET");
        set.arg(&shown).arg(SHOWN).exec_async(&mut self.connection).await?;
        Ok(Self { shown: Some(shown), ..self })
    }

    /// Acquires and releases the lock.
    pub(crate) async fn cycle(&mut self) -> Result<(), Failure> {
        let mut set = Cmd::new();
        set.arg("SET").arg(&self.key).arg(&self.id).arg("NX").arg("PX").arg(30_000);
        if !self.take(set).await? {
            return Err("the baseline's lock is taken".into());
        }
        let mut release = Cmd::new();
        release.arg("EVALSHA").arg(&self.release).arg(1).arg(&self.key).arg(&self.id);
        match release.query_async(&mut self.connection).await? {
            1 => Ok(()),
            _ => Err("the baseline's lock was lost".into()),
        }
    }

    async fn take(&mut self, set: Cmd) -> Result<bool, Failure> {
        let Some(shown) = &self.shown else {
            return Ok(set.query_async::<Value>(&mut self.connection).await? == Value::Okay);
        };
        let mut get = Cmd::new();
        get.arg("GET").arg(shown);
        let mut both = redis::Pipeline::with_capacity(2);
        both.add_command(set).add_command(get);
        let answers: Vec<Value> = both.query_async(&mut self.connection).await?;
        Ok(matches!(&answers[..], [Value::Okay, Value::BulkString(shown)] if shown == SHOWN))
    }

    /// Returns a lock with another name on the same connection.
    pub(crate) fn named(&self, name: &str) -> Self {
        Self { key: format!("baseline:{{{name}}}"), ..self.clone() }
    }
}

/// A connection that carries all concurrent requests.
#[derive(Clone)]
pub(super) struct RedisBaseline {
    /// The lock from which all others are derived.
    first: RedisBaselineLock,
    /// Whether the lock reads a token too.
    as_dlock: bool,
}

impl RedisBaseline {
    pub(super) async fn connect(url: &str, own: Own) -> Result<Self, Failure> {
        let first = RedisBaselineLock::new(connect(url).await?, "first").await?;
        Ok(Self { first, as_dlock: own == Own::Same })
    }
}

/// Locks that are acquired together.
pub(super) struct RedisBaselineLocks(Vec<RedisBaselineLock>);

impl Subject for RedisBaseline {
    type Lock = RedisBaselineLocks;

    async fn lock(&self, want: Want<'_>) -> Result<RedisBaselineLocks, Failure> {
        let names: Vec<&str> = match &want {
            Want::One(name) => vec![name],
            Want::All(names) => names.iter().map(String::as_str).collect(),
            Want::Fair(_) | Want::Read(_) | Want::Write(_) => return Err(super::NO_WAIT.into()),
        };
        let mut locks = Vec::new();
        for name in names {
            let lock = self.first.named(name);
            locks.push(if self.as_dlock { lock.with_look().await? } else { lock });
        }
        Ok(RedisBaselineLocks(locks))
    }

    async fn more(&self, words: &[&str]) -> Result<String, Failure> {
        once::more(self, words).await
    }
}

impl Once for RedisBaseline {
    async fn once(&self, name: &str) -> Result<(), Failure> {
        self.first.named(name).cycle().await
    }
}

impl Lock for RedisBaselineLocks {
    async fn cycle<W: Witness>(&mut self, _witness: &mut W) -> Result<(), Failure> {
        match &mut self.0[..] {
            [one] => one.cycle().await,
            all => try_join_all(all.iter_mut().map(RedisBaselineLock::cycle)).await.map(|_| ()),
        }
    }
}
