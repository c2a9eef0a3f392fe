//! The baseline of etcd, and the server's own Lock service, which runs Go's mutex in the server.
//!
//! The baseline is the cost of a minimal lock with bare requests over gRPC. It puts a key with the
//! lease of its session, and deletes the key. It does not look for other keys, does not wait, and
//! does not renew the lease, which outlasts every run.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use futures_util::{StreamExt as _, future::try_join_all, stream};
use hyper::{body::Incoming, client::conn::http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use tokio::net::TcpStream;
use tonic::{
    Request, Streaming,
    body::Body,
    client::Grpc,
    codegen::{
        Service, StdError,
        http::{self, Uri, uri::PathAndQuery},
    },
};
use tonic_prost::ProstCodec;

use super::once::{self, Once};
use crate::{
    Failure,
    subject::{Lock, Subject, Want, Witness},
};

/// Long, so that no run needs a renewal, in seconds.
const SESSION: i64 = 3600;
/// As long as the keys and values of a real lock.
const KEY: &str = "0123456789abcdef0123456789abcdef";
const VALUE: &[u8] = b"x 10000";

/// A connection to one server, which carries all concurrent requests.
#[derive(Clone)]
pub(crate) struct EtcdClient {
    sender: Sender,
    origin: Uri,
}

/// Opens a connection.
pub(crate) async fn connect(address: &str) -> Result<EtcdClient, Failure> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let (sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
    tokio::runtime::Handle::current().spawn(connection);
    Ok(EtcdClient { sender: Sender(sender), origin: format!("http://{address}").parse()? })
}

impl EtcdClient {
    /// Returns a new session.
    pub(crate) async fn grant(&self) -> Result<i64, Failure> {
        let request = LeaseGrantRequest { ttl: SESSION };
        let granted: LeaseGrantResponse =
            self.call(request, "/etcdserverpb.Lease/LeaseGrant").await?;
        Ok(granted.id)
    }

    /// Puts a key.
    pub(crate) async fn put(&self, key: &[u8], value: &[u8], lease: i64) -> Result<(), Failure> {
        let request = PutRequest { key: key.to_vec(), value: value.to_vec(), lease };
        let Done {} = self.call(request, "/etcdserverpb.KV/Put").await?;
        Ok(())
    }

    /// Acquires and releases a lock that consists only of the baseline.
    pub(crate) async fn cycle(&self, name: &str, lease: i64) -> Result<(), Failure> {
        let key = format!("/baseline/{name}/{KEY}").into_bytes();
        self.put(&key, VALUE, lease).await?;
        let Done {} = self.call(DeleteRangeRequest { key }, "/etcdserverpb.KV/DeleteRange").await?;
        Ok(())
    }

    /// Acquires a lock of the server's own service, and returns its key.
    pub(crate) async fn lock(&self, name: &str, lease: i64) -> Result<Vec<u8>, Failure> {
        let request = LockRequest { name: name.as_bytes().to_vec(), lease };
        let locked: LockResponse = self.call(request, "/v3lockpb.Lock/Lock").await?;
        Ok(locked.key)
    }

    /// Releases a lock of the server's own service.
    async fn unlock(&self, key: Vec<u8>) -> Result<(), Failure> {
        let Done {} = self.call(UnlockRequest { key }, "/v3lockpb.Lock/Unlock").await?;
        Ok(())
    }

    /// Watches a key from now on.
    pub(crate) async fn watch(&self, key: &[u8]) -> Result<Streaming<WatchResponse>, Failure> {
        let create = Some(WatchCreateRequest { key: key.to_vec() });
        // The request must not end, or the watch would end with it.
        let requests = stream::iter([WatchRequest { create }]).chain(stream::pending());
        let mut grpc = self.grpc().await?;
        let path = PathAndQuery::from_static("/etcdserverpb.Watch/Watch");
        let codec = ProstCodec::<WatchRequest, WatchResponse>::default();
        let mut answers = grpc.streaming(Request::new(requests), path, codec).await?.into_inner();
        match answers.message().await? {
            Some(WatchResponse { created: true, .. }) => Ok(answers),
            other => Err(format!("the watch was not created: {other:?}").into()),
        }
    }

    async fn call<Q, A>(&self, request: Q, path: &'static str) -> Result<A, Failure>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let mut grpc = self.grpc().await?;
        let codec = ProstCodec::<Q, A>::default();
        let path = PathAndQuery::from_static(path);
        Ok(grpc.unary(Request::new(request), path, codec).await?.into_inner())
    }

    async fn grpc(&self) -> Result<Grpc<Sender>, Failure> {
        let mut grpc = Grpc::with_origin(self.sender.clone(), self.origin.clone());
        grpc.ready().await.map_err(|error| error.to_string())?;
        Ok(grpc)
    }
}

/// The sending half of the connection.
#[derive(Clone)]
struct Sender(http2::SendRequest<Body>);

impl Service<http::Request<Body>> for Sender {
    type Response = http::Response<Incoming>;
    type Error = StdError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, StdError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), StdError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let answer = self.0.send_request(request);
        Box::pin(async move { Ok(answer.await?) })
    }
}

/// An answer that is only waited for.
#[derive(Clone, Copy, PartialEq, Message)]
struct Done {}

#[derive(Clone, Copy, PartialEq, Message)]
struct LeaseGrantRequest {
    #[prost(int64, tag = "1")]
    ttl: i64,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct LeaseGrantResponse {
    #[prost(int64, tag = "2")]
    id: i64,
}

#[derive(Clone, PartialEq, Message)]
struct PutRequest {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
    #[prost(int64, tag = "3")]
    lease: i64,
}

#[derive(Clone, PartialEq, Message)]
struct DeleteRangeRequest {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct LockRequest {
    #[prost(bytes = "vec", tag = "1")]
    name: Vec<u8>,
    #[prost(int64, tag = "2")]
    lease: i64,
}

#[derive(Clone, PartialEq, Message)]
struct LockResponse {
    #[prost(bytes = "vec", tag = "2")]
    key: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct UnlockRequest {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct WatchRequest {
    #[prost(message, optional, tag = "1")]
    create: Option<WatchCreateRequest>,
}

#[derive(Clone, PartialEq, Message)]
struct WatchCreateRequest {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
}

/// Events of watches.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct WatchResponse {
    #[prost(bool, tag = "3")]
    created: bool,
    #[prost(message, repeated, tag = "11")]
    events: Vec<Event>,
}

#[derive(Clone, PartialEq, Message)]
struct Event {
    #[prost(message, optional, tag = "2")]
    kv: Option<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct KeyValue {
    #[prost(bytes = "vec", tag = "5")]
    value: Vec<u8>,
}

impl WatchResponse {
    /// Returns the values that were put, in order.
    pub(crate) fn values(&self) -> impl Iterator<Item = &[u8]> {
        self.events.iter().filter_map(|event| Some(event.kv.as_ref()?.value.as_slice()))
    }
}

/// A connection with a session.
#[derive(Clone)]
pub(super) struct EtcdBaseline {
    client: EtcdClient,
    session: i64,
}

impl EtcdBaseline {
    pub(super) async fn connect(url: &str) -> Result<Self, Failure> {
        let client = connect(super::address(url)).await?;
        let session = client.grant().await?;
        Ok(Self { client, session })
    }
}

/// Locks that are acquired together.
pub(super) struct EtcdBaselineLocks {
    of: EtcdBaseline,
    names: Vec<String>,
}

impl Subject for EtcdBaseline {
    type Lock = EtcdBaselineLocks;

    async fn lock(&self, want: Want<'_>) -> Result<EtcdBaselineLocks, Failure> {
        let names = match want {
            Want::One(name) => vec![name.to_owned()],
            Want::All(names) => names.to_vec(),
            Want::Fair(_) | Want::Read(_) | Want::Write(_) => return Err(super::NO_WAIT.into()),
        };
        Ok(EtcdBaselineLocks { of: self.clone(), names })
    }

    async fn more(&self, words: &[&str]) -> Result<String, Failure> {
        once::more(self, words).await
    }
}

impl Once for EtcdBaseline {
    async fn once(&self, name: &str) -> Result<(), Failure> {
        self.client.cycle(name, self.session).await
    }
}

impl Lock for EtcdBaselineLocks {
    async fn cycle<W: Witness>(&mut self, _witness: &mut W) -> Result<(), Failure> {
        let Self { of, names } = self;
        match &names[..] {
            [one] => of.once(one).await,
            all => try_join_all(all.iter().map(|name| of.once(name))).await.map(|_| ()),
        }
    }
}

/// The server's own Lock service.
#[derive(Clone)]
pub(super) struct LockService(EtcdClient);

impl LockService {
    pub(super) async fn connect(url: &str) -> Result<Self, Failure> {
        Ok(Self(connect(super::address(url)).await?))
    }
}

/// A lock of the service. It has a session of its own, because the service lets a session in twice.
pub(super) struct ServiceLock {
    client: EtcdClient,
    session: i64,
    name: String,
}

impl Subject for LockService {
    type Lock = ServiceLock;

    async fn lock(&self, want: Want<'_>) -> Result<ServiceLock, Failure> {
        match want {
            Want::One(name) | Want::Fair(name) => {
                let (client, session) = (self.0.clone(), self.0.grant().await?);
                Ok(ServiceLock { client, session, name: format!("/service/{name}") })
            }
            Want::Read(_) | Want::Write(_) => Err("it has no read-write lock".into()),
            Want::All(_) => Err("it takes one name at a time".into()),
        }
    }
}

impl Lock for ServiceLock {
    async fn cycle<W: Witness>(&mut self, witness: &mut W) -> Result<(), Failure> {
        let key = self.client.lock(&self.name, self.session).await?;
        witness.held(None).await;
        self.client.unlock(key).await
    }
}
