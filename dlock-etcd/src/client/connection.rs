//! The connection to one member: TCP, TLS if wanted, and HTTP/2 with pings.
//!
//! It is hyper's bare connection, not tonic's `Channel`, because a `Channel` connects again by
//! itself. Behind a name or a balancer that may be another member, and what the client has learned
//! from one member must not be mixed with answers of another.

use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use dlock_core::Certainty::NotApplied;
use hyper::{body::Incoming, client::conn::http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    sync::watch,
    task::AbortHandle,
};
use tonic::{
    body::Body,
    codegen::{Service, StdError, http},
};

use super::{
    failure::{
        Failure,
        FailureKind::{Disconnected, Tls as NoTls},
        NotSent,
    },
    tls::Tls,
};

/// Servers close connections that send pings more often than every 5 s. hyper sends them only when
/// nothing else has arrived for that long, and only while a stream is open.
const PING_EVERY: Duration = Duration::from_secs(6);
/// How long the answer to a ping may take.
const PING_ANSWER: Duration = Duration::from_secs(4);

/// The sending half of a connection.
#[derive(Clone, Debug)]
pub(super) struct Sender(http2::SendRequest<Body>);

/// A running connection. It ends when this is dropped.
#[derive(Debug)]
pub(super) struct Connection {
    /// Closed when the connection has ended.
    pub(super) ended: watch::Receiver<()>,
    task: AbortHandle,
}

/// Connects to `host:port`.
pub(super) async fn connect(
    endpoint: &str,
    tls: Option<&Tls>,
) -> Result<(Sender, Connection), Failure> {
    let refused = |error: std::io::Error| Failure::new(Disconnected, NotApplied, error.to_string());
    // Before the connection, so that wrong files are reported even if no member runs.
    let secure = tls.map(Tls::load).transpose()?;
    let stream = TcpStream::connect(endpoint).await.map_err(refused)?;
    stream.set_nodelay(true).map_err(refused)?;
    match secure {
        None => start(stream).await,
        Some(secure) => match secure.handshake(endpoint, stream).await {
            Ok(stream) => start(stream).await,
            Err(text) => Err(Failure::new(NoTls, NotApplied, text)),
        },
    }
}

async fn start<S>(stream: S) -> Result<(Sender, Connection), Failure>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let (sender, connection) = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_ANSWER)
        .keep_alive_while_idle(false)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(|error| Failure::broken(&error))?;
    let (running, ended) = watch::channel(());
    let task = tokio::runtime::Handle::current().spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(target: "dlock", %error, "the connection to etcd has ended");
        }
        drop(running);
    });
    Ok((Sender(sender), Connection { ended, task: task.abort_handle() }))
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Service<http::Request<Body>> for Sender {
    type Response = http::Response<Incoming>;
    type Error = StdError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, StdError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), StdError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let answer = self.0.try_send_request(request);
        Box::pin(async move {
            answer.await.map_err(|mut refused| match refused.take_message() {
                Some(_) => NotSent.into(),
                None => refused.into_error().into(),
            })
        })
    }
}
