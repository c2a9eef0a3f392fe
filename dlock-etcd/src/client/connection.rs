//! The connection to one member: TCP, TLS if wanted, and HTTP/2 with pings.
//!
//! It is a bare HTTP/2 connection, not tonic's `Channel`, for two reasons. A `Channel` connects again
//! by itself; behind a name or a balancer that may be another member, and what the client has learned
//! from one member must not be mixed with answers of another. And a request in a `Channel` passes
//! through three tasks, here through the one of the connection.

use std::{
    future::poll_fn,
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use dlock_core::{Certainty::NotApplied, TlsFiles};
use h2::{
    Ping, PingPong, Reason, RecvStream, SendStream,
    client::{Builder, SendRequest},
};
use http_body::{Body as HttpBody, Frame};
use prost::bytes::Bytes;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    runtime::Handle,
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
    tls::Secure,
};

/// Servers close connections that send pings more often than every 5 s, or while no stream is open.
const PING_EVERY: Duration = Duration::from_secs(6);
/// How long the answer to a ping may take.
const PING_ANSWER: Duration = Duration::from_secs(4);

/// The bytes that the server may send ahead: of a stream, and of the connection.
const WINDOWS: (u32, u32) = (1 << 20, 8 << 20);

/// The sending half of a connection.
#[derive(Clone)]
pub(super) struct Sender {
    requests: SendRequest<Bytes>,
    /// The number of messages that were received. Each open stream has a clone of it.
    received: Arc<AtomicU64>,
    runtime: Handle,
}

/// A running connection. It ends when this is dropped.
#[derive(Debug)]
pub(super) struct Connection {
    /// Closed when the connection has ended.
    pub(super) ended: watch::Receiver<()>,
    task: AbortHandle,
}

impl Sender {
    /// Returns the number of streams that the server allows at a time.
    pub(super) fn most_streams(&self) -> usize {
        self.requests.current_max_send_streams()
    }
}

/// Connects to `host:port`, at this address of the host.
pub(super) async fn connect(
    endpoint: &str,
    address: SocketAddr,
    tls: Option<&TlsFiles>,
) -> Result<(Sender, Connection), Failure> {
    let refused = |error: std::io::Error| Failure::new(Disconnected, NotApplied, error.to_string());
    // Before the connection, so that wrong files are reported even if no member runs.
    let secure = tls.map(Secure::load).transpose()?;
    #[cfg(dlock_sim)]
    if secure.is_none() {
        return start(dlock_core::sim::connect(endpoint).await.map_err(refused)?).await;
    }
    let stream = TcpStream::connect(address).await.map_err(refused)?;
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
    let mut builder = Builder::new();
    // h2 uses the machine's clock to forget streams.
    #[cfg(dlock_sim)]
    builder.reset_stream_duration(Duration::MAX);
    let (requests, mut connection) = builder
        .enable_push(false)
        .initial_window_size(WINDOWS.0)
        .initial_connection_window_size(WINDOWS.1)
        .handshake(stream)
        .await
        .map_err(|error| Failure::broken(&error))?;
    let received = Arc::new(AtomicU64::new(0));
    let pings = pings(connection.ping_pong(), Arc::clone(&received));
    let (running, ended) = watch::channel(());
    let runtime = Handle::current();
    let task = runtime.spawn(async move {
        tokio::select! {
            result = connection => {
                if let Err(error) = result {
                    tracing::debug!(target: "dlock", %error, "the connection to etcd has ended");
                }
            }
            () = pings => tracing::debug!(target: "dlock", "a member of etcd answers no pings"),
        }
        drop(running);
    });
    let connection = Connection { ended, task: task.abort_handle() };
    Ok((Sender { requests, received, runtime }, connection))
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Sends a ping whenever nothing has arrived for long although a stream is open. Ends when one is
/// not answered.
async fn pings(pings: Option<PingPong>, received: Arc<AtomicU64>) {
    let Some(mut pings) = pings else { return std::future::pending().await };
    loop {
        let before = received.load(Ordering::Relaxed);
        tokio::time::sleep(PING_EVERY).await;
        // This function and the sender have one each.
        let is_open = Arc::strong_count(&received) > 2;
        if is_open && received.load(Ordering::Relaxed) == before {
            let answer = tokio::time::timeout(PING_ANSWER, pings.ping(Ping::opaque())).await;
            if !matches!(answer, Ok(Ok(_))) {
                return;
            }
        }
    }
}

impl Service<http::Request<Body>> for Sender {
    type Response = http::Response<Received>;
    type Error = StdError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, StdError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), StdError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let Self { requests, received, runtime } = self.clone();
        Box::pin(async move {
            let (head, body) = request.into_parts();
            let mut requests = requests.ready().await.map_err(|_| NotSent)?;
            let head = http::Request::from_parts(head, ());
            let (answer, sending) = requests.send_request(head, false).map_err(|_| NotSent)?;
            let mut sending = Box::pin(send(body, sending));
            // The only message of a unary request is there. Those of a stream come later.
            if poll_fn(|context| Poll::Ready(sending.as_mut().poll(context))).await.is_pending() {
                runtime.spawn(sending);
            }
            let answer = answer.await.map_err(|error| match error.reason() {
                Some(Reason::REFUSED_STREAM) => StdError::from(NotSent),
                _ => error.into(),
            })?;
            Ok(answer.map(|stream| Received { stream, received }))
        })
    }
}

/// Sends the messages of a request. The last one also ends it.
async fn send(mut body: Body, mut stream: SendStream<Bytes>) {
    let mut last: Option<Bytes> = None;
    loop {
        let frame = poll_fn(|context| {
            let frame = Pin::new(&mut body).poll_frame(context);
            if frame.is_pending()
                && let Some(data) = last.take()
            {
                // If the stream has ended, its reader is told.
                let _ = stream.send_data(data, false);
            }
            frame
        });
        match frame.await {
            Some(Ok(frame)) => {
                if let Some(data) = last.replace(frame.into_data().unwrap_or_default()) {
                    let _ = stream.send_data(data, false);
                }
            }
            Some(Err(_)) => return stream.send_reset(Reason::CANCEL),
            None => {
                let _ = stream.send_data(last.unwrap_or_default(), true);
                return;
            }
        }
    }
}

/// The messages of an answer.
pub(super) struct Received {
    stream: RecvStream,
    received: Arc<AtomicU64>,
}

impl HttpBody for Received {
    type Data = Bytes;
    type Error = h2::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, h2::Error>>> {
        let this = self.get_mut();
        if let Some(data) = ready!(this.stream.poll_data(context)) {
            let data = data?;
            this.received.fetch_add(1, Ordering::Relaxed);
            this.stream.flow_control().release_capacity(data.len())?;
            return Poll::Ready(Some(Ok(Frame::data(data))));
        }
        let trailers = ready!(this.stream.poll_trailers(context))?;
        Poll::Ready(trailers.map(|trailers| Ok(Frame::trailers(trailers))))
    }
}
