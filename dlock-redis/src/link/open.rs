//! Opens one connection, and reads the server's information about itself.
//!
//! All questions are one pipeline, so that they cost one round trip and come from the same server.
//! `TIME` is the first question, since the time that it returns has to lie between the send and the
//! receive time.

use std::{
    net::{IpAddr, SocketAddr},
    ops::ControlFlow,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use dlock_core::{Clock, ConfigIssue, Error, ErrorKind, Instant, race};
use redis::{
    AsyncConnectionConfig, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, ProtocolVersion,
    PushInfo, PushKind, RedisConnectionInfo, RedisError, RedisFuture, Value,
    aio::MultiplexedConnection,
    io::{AsyncDNSResolver, tcp::TcpSettings},
};
use tokio::{net::lookup_host, time::timeout};

use super::{
    server_info::{ServerInfo, SkippedQueries},
    tls,
};
use crate::{
    config::{Login, RedisConfig, Topology},
    error::{explain, is_denial},
    reply,
    waiters::Waiters,
};

/// The number of commands that may wait to be written.
const BUFFER: usize = 1024;

/// The longest time for which one address of a host name is tried alone.
const ALONE: Duration = Duration::from_millis(250);

/// The limit for the look-up of a host name.
const LOOKUP: Duration = Duration::from_secs(2);

/// Connects to one server, without any check of it.
///
/// The driver takes the first address of a host name that accepts a connection. That may be one
/// that never answers. So each address gets its own attempt, which includes the login. It starts
/// when one before has failed, or the ones before are slow. The first success is used.
pub(super) async fn connection(
    config: &RedisConfig,
    address: &str,
    login: &Login,
    push: impl Fn(PushInfo) + Clone + Send + Sync + 'static,
) -> Result<MultiplexedConnection, RedisError> {
    let info = info(config, address, login)?;
    let attempts = addresses(info.addr()).await.into_iter().map(|address| {
        // Only the connection that is used may report its end.
        let (used, push) = (Arc::new(AtomicBool::new(false)), push.clone());
        let is_used = Arc::clone(&used);
        let push = move |info| {
            if is_used.load(Ordering::Relaxed) {
                push(info);
            }
        };
        let attempt = attempt(config, info.clone(), Some(address), push);
        async move {
            let connected = attempt.await;
            // An end before this is noticed by the first command.
            used.store(true, Ordering::Relaxed);
            connected
        }
    });
    let judge = |kept: Option<RedisError>, error: RedisError| match error.is_io_error() {
        true => ControlFlow::Continue(kept.unwrap_or(error)),
        // Another address would give the same answer.
        false => ControlFlow::Break(error),
    };
    match race(attempts, ALONE, judge).await {
        Some(connected) => connected,
        None => attempt(config, info, None, push).await,
    }
}

/// Returns the addresses of a host name. None for an address, a socket, and a name that does not
/// resolve in time: the driver reports that.
async fn addresses(addr: &ConnectionAddr) -> Vec<SocketAddr> {
    match addr {
        ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. }
            if host.parse::<IpAddr>().is_err() =>
        {
            let found = timeout(LOOKUP, lookup_host((host.as_str(), *port))).await;
            let found = found.ok().and_then(Result::ok);
            let mut found = found.map(Vec::from_iter).unwrap_or_default();
            found.dedup();
            found
        }
        _ => Vec::new(),
    }
}

/// Connects to this address of the host, or to any.
async fn attempt(
    config: &RedisConfig,
    info: ConnectionInfo,
    address: Option<SocketAddr>,
    push: impl Fn(PushInfo) + Send + Sync + 'static,
) -> Result<MultiplexedConnection, RedisError> {
    let client = tls::client(info, config)?;
    let push = move |info: PushInfo| -> Result<(), std::convert::Infallible> {
        push(info);
        Ok(())
    };
    // The response timeout may be long because answers are slow. A server that can be reached accepts
    // a connection soon.
    let limit = config.response_timeout.min(Duration::from_secs(2));
    let mut settings = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(limit))
        .set_response_timeout(Some(config.response_timeout))
        .set_pipeline_buffer_size(BUFFER)
        .set_push_sender(push);
    if let Some(address) = address {
        settings = settings.set_dns_resolver(Resolved(address));
    }
    #[cfg(not(dlock_sim))]
    let connection = client.get_multiplexed_async_connection_with_config(&settings).await;
    #[cfg(dlock_sim)]
    let connection = timeout(limit, simulated(client.get_connection_info(), settings))
        .await
        .map_err(|_| std::io::Error::from(std::io::ErrorKind::TimedOut))?;
    connection
}

/// Connects in the network of a simulation.
#[cfg(dlock_sim)]
async fn simulated(
    info: &ConnectionInfo,
    settings: AsyncConnectionConfig,
) -> Result<MultiplexedConnection, RedisError> {
    let stream = dlock_core::sim::connect(&info.addr().to_string()).await?;
    let opening = MultiplexedConnection::new_with_config(info.redis_settings(), stream, settings);
    let (connection, driver) = opening.await?;
    tokio::runtime::Handle::current().spawn(driver);
    Ok(connection)
}

/// The address of a host name. A certificate is still checked for the name.
struct Resolved(SocketAddr);

impl AsyncDNSResolver for Resolved {
    fn resolve<'a, 'b: 'a>(
        &'a self,
        _: &'b str,
        _: u16,
    ) -> RedisFuture<'a, Box<dyn Iterator<Item = SocketAddr> + Send + 'a>> {
        let found: Box<dyn Iterator<Item = SocketAddr> + Send> = Box::new([self.0].into_iter());
        Box::pin(async { Ok(found) })
    }
}

/// Returns the address in the driver's form.
pub(super) fn info(
    config: &RedisConfig,
    address: &str,
    login: &Login,
) -> Result<ConnectionInfo, RedisError> {
    let info = match (&config.topology, &config.tls) {
        _ if let Some(given) = &config.given => given.clone().into_connection_info()?,
        (Topology::Socket, _) => ConnectionAddr::Unix(address.into()).into_connection_info()?,
        (_, None) => format!("redis://{address}").into_connection_info()?,
        (_, Some(_)) => format!("rediss://{address}").into_connection_info()?,
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
    Ok(info.set_tcp_settings(tcp()).set_redis_settings(redis))
}

/// Small messages are sent at once, without waiting for more.
pub(super) fn tcp() -> TcpSettings {
    TcpSettings::default().set_nodelay(true)
}

/// Checks that the files of the configuration can be read, so that an error names the file.
pub(super) fn check_files(config: &RedisConfig) -> Result<(), Error> {
    let Some(tls) = &config.tls else { return Ok(()) };
    if let Some(authorities) = &tls.authorities {
        check_file("tls_ca", authorities, "CERTIFICATE")?;
    }
    if let Some((certificate, key)) = &tls.certificate {
        check_file("tls_cert", certificate, "CERTIFICATE")?;
        check_file("tls_key", key, "PRIVATE KEY")?;
    }
    Ok(())
}

/// Checks the contents of a file. The driver accepts one without any certificate or key in it.
fn check_file(option: &str, path: &Path, what: &str) -> Result<(), Error> {
    let unfit = |why: &str| {
        let path = path.display();
        Error::config(
            ConfigIssue::Access,
            format!("the file {path} of dlock.{option} {why}: check the path and the file"),
        )
    };
    let text = std::fs::read(path).map_err(|error| unfit(&format!("can't be read: {error}")))?;
    let begins = format!("{what}-----");
    match text.windows(begins.len()).any(|part| part == begins.as_bytes()) {
        true => Ok(()),
        false => Err(unfit(&format!("holds no {what} in PEM"))),
    }
}

/// Reads a server's information about itself, and the mark under this key. Queries in `skipped` are
/// left out.
pub(super) async fn server_info(
    connection: &mut MultiplexedConnection,
    mark: Option<&str>,
    skipped: SkippedQueries,
) -> Result<ServerInfo, RedisError> {
    let mut ask = redis::pipe();
    ask.cmd("TIME").ignore_errors();
    if !skipped.info {
        ask.cmd("INFO");
    }
    if !skipped.settings {
        // One pattern for both settings.
        ask.cmd("CONFIG").arg("GET").arg("*appendfsync*");
    }
    if let Some(key) = mark {
        ask.cmd("GET").arg(key);
    }
    // These times enclose all commands of the pipeline, so they enclose the answer to `TIME`, too.
    let sent = Clock::Boot.now();
    let answers = connection.send_packed_commands(&ask, 0, ask.len()).await?;
    let received = Clock::Boot.now();
    // In the order of the commands above. An answer that was not requested must not be taken.
    let mut answers = answers.into_iter();
    let time = answers.next().as_ref().and_then(reply::micros);
    let info = answer_of(if skipped.info { None } else { answers.next() });
    let settings = answer_of(if skipped.settings { None } else { answers.next() });
    let mark = answers.next().as_ref().and_then(reply::text);
    let refuses = SkippedQueries {
        info: skipped.info || matches!(info, Err(Some(ref error)) if is_denial(error)),
        settings: skipped.settings || matches!(settings, Err(Some(ref error)) if is_denial(error)),
    };
    // A refused `INFO` leaves the information unknown, and the checks decide. Other errors fail the
    // connect, since they may pass.
    let info = match info {
        Ok(info) => reply::text(&info).unwrap_or_default(),
        Err(Some(error)) if !refuses.info => return Err(error),
        Err(_) => String::new(),
    };
    let settings = settings.ok().as_ref().and_then(reply::pairs).unwrap_or_default();
    let server_info = ServerInfo::read(&info, &settings, received).with_time(time, sent);
    Ok(server_info.with_mark(mark.as_deref()).refusing(refuses))
}

/// Returns the answer of a server. The error is its refusal, or `None` if the question was left
/// out.
fn answer_of(answer: Option<Value>) -> Result<Value, Option<RedisError>> {
    answer.ok_or(None)?.extract_error().map_err(Some)
}

/// Refuses a server that can't grant locks at present.
pub(super) fn check_ready(server_info: &ServerInfo) -> Result<(), Error> {
    let what = if server_info.replica {
        "the server is a read-only replica: give the address of the master, or use \
         redis+sentinel:// or redis+cluster:// to find it"
    } else if server_info.loading {
        "the server is still loading its data: wait until it has finished"
    } else {
        return Ok(());
    };
    Err(Error::new(ErrorKind::Unavailable, what))
}

/// [`explain`] for a connect: there a silent or closed connection has other causes than later.
pub(super) fn refused(error: RedisError, store: &str) -> Error {
    let tls = store.starts_with("rediss");
    let closed = error.is_connection_dropped() && !error.is_connection_refusal();
    let why = match (closed, tls) {
        (true, false) => {
            "the server closes the connection at once: it has reached its limit of clients \
             (maxclients), expects TLS on this port (rediss://), or is not Redis: check that the \
             host and the port are those of Redis or Valkey"
        }
        (true, true) => {
            "the server closes the connection at once: it has reached its limit of clients \
             (maxclients), expects no TLS on this port (redis://), or is not Redis: check that the \
             host and the port are those of Redis or Valkey"
        }
        (false, true) if error.is_timeout() => {
            "no answer from the server in time: check that it is Redis or Valkey and expects TLS \
             on this port, and whether it is overloaded or unreachable"
        }
        (false, false) if error.is_timeout() => {
            "no answer from the server in time: check that Redis or Valkey listens on this port, \
             without TLS, and whether it is overloaded or unreachable, or raise \
             dlock.response_timeout"
        }
        _ => return explain(error).during("connect").with_store(store),
    };
    Error::new(ErrorKind::Unavailable, why).during("connect").with_store(store).with_source(error)
}

/// Passes messages to the waiters. True if the connection is lost.
pub(super) fn receive(info: PushInfo, waiters: Option<&Waiters>, now: Instant) -> bool {
    match (info.kind, info.data.as_slice(), waiters) {
        (PushKind::Disconnection, ..) => return true,
        (PushKind::Message | PushKind::SMessage, [_, Value::BulkString(text)], Some(waiters)) => {
            waiters.receive(text, now);
        }
        _ => {}
    }
    false
}
