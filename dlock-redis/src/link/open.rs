//! Opening one connection, by the configuration.

use std::time::Duration;

use dlock_core::{Clock, ConfigIssue, Error, ErrorKind};
use redis::{
    AsyncConnectionConfig, ConnectionInfo, IntoConnectionInfo, ProtocolVersion, PushInfo,
    RedisConnectionInfo, RedisError, Value, aio::MultiplexedConnection, io::tcp::TcpSettings,
};

use super::{facts::Facts, tls};
use crate::{
    config::{Login, RedisConfig, Topology},
    error::explain,
    reply,
};

/// How many commands may wait to be written.
const BUFFER: usize = 1024;

/// Connects to one address, without a look at what is there.
pub(super) async fn connection(
    config: &RedisConfig,
    address: &str,
    login: &Login,
    push: impl Fn(PushInfo) + Send + Sync + 'static,
) -> Result<MultiplexedConnection, RedisError> {
    let info = info(config, address, login)?;
    let client = tls::client(info, config.tls.as_ref())?;
    let push = move |info: PushInfo| -> Result<(), std::convert::Infallible> {
        push(info);
        Ok(())
    };
    let settings = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(config.response_timeout.min(Duration::from_secs(2))))
        .set_response_timeout(Some(config.response_timeout))
        .set_pipeline_buffer_size(BUFFER)
        .set_push_sender(push);
    client.get_multiplexed_async_connection_with_config(&settings).await
}

/// The driver's form of an address.
pub(super) fn info(
    config: &RedisConfig,
    address: &str,
    login: &Login,
) -> Result<ConnectionInfo, RedisError> {
    let url = match (&config.topology, &config.tls) {
        (Topology::Socket, _) => format!("redis+unix://{address}"),
        (_, None) => format!("redis://{address}"),
        (_, Some(_)) => format!("rediss://{address}"),
    };
    let mut redis = RedisConnectionInfo::default()
        .set_protocol(ProtocolVersion::RESP3)
        .set_lib_name("dlock", env!("CARGO_PKG_VERSION"))
        .set_db(config.database);
    if let Some(user) = &login.user {
        redis = redis.set_username(user);
    }
    if let Some(password) = &login.password {
        redis = redis.set_password(password);
    }
    Ok(url.into_connection_info()?.set_tcp_settings(tcp()).set_redis_settings(redis))
}

/// Small messages at once, and a dead peer found out by the system.
pub(super) fn tcp() -> TcpSettings {
    TcpSettings::default().set_nodelay(true)
}

/// Checks that the files of the configuration can be read, for an error that says so.
pub(super) fn check_files(config: &RedisConfig) -> Result<(), Error> {
    let Some(tls) = &config.tls else { return Ok(()) };
    let pair = tls.certificate.iter().flat_map(|(certificate, key)| [certificate, key]);
    for path in tls.authorities.iter().chain(pair) {
        std::fs::metadata(path).map_err(|error| {
            Error::config(
                ConfigIssue::Access,
                format!("the file {} of dlock.tls_* can't be read: {error}", path.display()),
            )
        })?;
    }
    Ok(())
}

/// Asks a server what it is.
pub(super) async fn facts(connection: &mut MultiplexedConnection) -> Result<Facts, RedisError> {
    let mut ask = redis::pipe();
    ask.cmd("INFO").cmd("CONFIG").arg("GET").arg("appendfsync").cmd("TIME").ignore_errors();
    let sent = Clock::Boot.now();
    let answers = connection.send_packed_commands(&ask, 0, ask.len()).await?;
    let received = Clock::Boot.now();
    let info = answers.first().and_then(text).unwrap_or_default();
    let fsync = answers.get(1).and_then(|value| match value {
        Value::Map(pairs) => pairs.first().and_then(|(_, value)| text(value)),
        Value::Array(parts) => parts.get(1).and_then(text),
        _ => None,
    });
    if let Some(Value::ServerError(error)) = answers.first() {
        let error = RedisError::from(error.clone());
        if error.kind() != redis::ErrorKind::Server(redis::ServerErrorKind::NoPerm) {
            return Err(error);
        }
        tracing::debug!("this user may not ask for INFO, so the server is not checked");
    }
    let time = answers.get(2).and_then(reply::micros);
    Ok(Facts::read(&info, fsync.as_deref(), received).with_time(time, sent))
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::BulkString(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        Value::VerbatimString { text, .. } | Value::SimpleString(text) => Some(text.clone()),
        _ => None,
    }
}

/// Refuses a server that can't grant locks just now.
pub(super) fn check_ready(facts: &Facts) -> Result<(), Error> {
    let what = if facts.replica {
        "the server is a read-only replica: give the address of the master, or use \
         redis+sentinel:// or redis+cluster:// to find it"
    } else if facts.loading {
        "the server is still loading its data: wait until it has"
    } else {
        return Ok(());
    };
    Err(Error::new(ErrorKind::Unavailable, what))
}

/// [`explain`], during a connect.
pub(super) fn refused(error: RedisError, store: &str) -> Error {
    explain(error).during("connect").with_store(store)
}
