//! The baseline: what the bare driver needs for the least that can be called a lock.
//!
//! `SET key id NX PX 30000` to take it, and a script that deletes the key if it still has the id
//! to give it back. No queue, no token, no renewal, no second try. Or with a
//! [look](RedisBaselineLock::with_look) at a token, which is a `GET` more: the least that plain
//! commands make a lock with a token of. dlock's scripts do that and compare the time with a deadline,
//! which commands can't.

use std::time::Duration;

use redis::{
    AsyncConnectionConfig, Client, Cmd, IntoConnectionInfo, ProtocolVersion, Value,
    aio::MultiplexedConnection,
};

use crate::Failure;

/// What is looked at: a token.
const SHOWN: &[u8] = b"1795554668339239";

const RELEASE: &str = "\
if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end
return 0";

/// The bare driver's client, with the settings that are known to make it fast.
pub(crate) fn client(url: &str) -> Result<Client, Failure> {
    let info = url.into_connection_info()?;
    let tcp = info.tcp_settings().clone().set_nodelay(true);
    let redis = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
    Ok(Client::open(info.set_tcp_settings(tcp).set_redis_settings(redis))?)
}

/// How its connections behave.
pub(crate) fn config() -> AsyncConnectionConfig {
    AsyncConnectionConfig::new()
        .set_pipeline_buffer_size(1024)
        .set_response_timeout(Some(Duration::from_secs(10)))
}

/// A connection that all tasks share.
pub(crate) async fn connect(url: &str) -> Result<MultiplexedConnection, Failure> {
    Ok(client(url)?.get_multiplexed_async_connection_with_config(&config()).await?)
}

/// A lock made of nothing but the baseline.
#[derive(Clone)]
pub(crate) struct RedisBaselineLock {
    connection: MultiplexedConnection,
    release: String,
    key: String,
    id: String,
    shown: Option<String>,
}

impl RedisBaselineLock {
    /// One on this connection.
    pub(crate) async fn new(
        mut connection: MultiplexedConnection,
        name: &str,
    ) -> Result<Self, Failure> {
        let load = redis::cmd("SCRIPT").arg("LOAD").arg(RELEASE).to_owned();
        let release = load.query_async(&mut connection).await?;
        // As long as the keys and ids that a real lock needs.
        let id = format!("0123456789abcdef:{name}");
        Ok(Self { connection, release, key: format!("baseline:{{{name}}}"), id, shown: None })
    }

    /// One that looks at a token as well, in one message with the `SET`.
    pub(crate) async fn with_look(mut self) -> Result<Self, Failure> {
        let shown = format!("{}:F", self.key);
        let mut set = redis::cmd("SET");
        set.arg(&shown).arg(SHOWN).exec_async(&mut self.connection).await?;
        Ok(Self { shown: Some(shown), ..self })
    }

    /// Takes it and gives it back.
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

    /// One with another name on the same connection.
    pub(crate) fn named(&self, name: &str) -> Self {
        Self { key: format!("baseline:{{{name}}}"), ..self.clone() }
    }
}
