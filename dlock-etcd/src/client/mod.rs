//! A small client of etcd: one connection to one member.
//!
//! The crate `etcd-client` is not used, for these reasons (version 0.21). It generates its messages
//! in a build script that needs `protoc` on every machine. It balances requests over its endpoints:
//! with one of three members down, calls fail with a connect error, and with one paused they hang
//! until a ping fails. dlock's rules need the opposite: the answers to a renewal and to the votes
//! after it, and a watch with the reads after its events, must come from the same member. Its
//! streams do not come back either, so a user has to set up watches and renewals again in any case.
//!
//! - [`dial`] connects, logs in, and returns when the member has told its status. There is no
//!   reconnect: the session chooses the next member.
//! - [`Client::call`] sends any unary request; `messages` connects each with its method and answer.
//! - [`Client::keep_alive`] renews a lease on a stream of its own.
//! - [`Client::watch`] sets a watch; all watches share a stream.
//! - [`Failure`] says what failed, and whether the request may have been applied.

mod calls;
mod connection;
mod failure;
mod keepalive;
mod messages;
mod tls;
mod watch;

use std::{fmt, net::SocketAddr, sync::Arc};

use dlock_core::{
    Certainty::{NotApplied, Unknown},
    TlsFiles,
};
use parking_lot::Mutex;
pub(crate) use prost::bytes::Bytes;
use tokio::time::{Instant, timeout_at};
use tonic::codegen::http::Uri;

#[cfg(feature = "tls")]
pub(crate) use self::tls::check_host;
use self::{
    calls::Calls,
    connection::{Connection, connect},
    keepalive::Keepalives,
    watch::WatchStream,
};
pub(crate) use self::{
    failure::{Failure, FailureKind},
    messages::*,
    watch::{Seen, Watch},
};

/// The credentials of a client and its TLS files.
#[derive(Clone, Default)]
pub(crate) struct Access {
    /// The user and the password.
    pub(crate) login: Option<(String, String)>,
    pub(crate) tls: Option<TlsFiles>,
}

impl fmt::Debug for Access {
    /// Prints the credentials without the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let user = self.login.as_ref().map(|(user, _)| user);
        f.debug_struct("Access").field("user", &user).field("tls", &self.tls).finish()
    }
}

/// One connection to one member. Clones share it. It never connects again: after it has broken,
/// all calls fail with [`FailureKind::Disconnected`], and [`dial`] makes a new one. It is closed
/// when the last clone is dropped.
#[derive(Clone)]
pub(crate) struct Client {
    shared: Arc<Shared>,
}

struct Shared {
    member_id: u64,
    calls: Arc<Calls>,
    keepalives: Keepalives,
    /// The stream for new watches.
    watches: Mutex<Option<Arc<WatchStream>>>,
    connection: Connection,
}

/// Connects to the member at `endpoint` (`host:port`), at this address of the host, logs in, and asks
/// for its status. Nothing is applied if it fails: each failure is `NotApplied`.
pub(crate) async fn dial(
    endpoint: &str,
    address: SocketAddr,
    access: &Access,
    deadline: Instant,
) -> Result<(Client, Header, StatusResponse), Failure> {
    let dialing = async {
        let scheme = if access.tls.is_some() { "https" } else { "http" };
        let origin: Uri = format!("{scheme}://{endpoint}").parse().map_err(|_| {
            Failure::new(FailureKind::Disconnected, NotApplied, "the address is not host:port")
        })?;
        let (sender, connection) = connect(endpoint, address, access.tls.as_ref()).await?;
        let calls = Calls::new(sender, origin, access.login.clone());
        let greeting = async {
            if access.login.is_some() {
                calls.log_in(0, deadline).await?;
            }
            calls.call(StatusRequest {}, deadline).await
        };
        let (header, status) = greeting.await.map_err(|failure| match failure.kind() {
            // A server reports a missing or wrong certificate of the client only now.
            FailureKind::Disconnected if access.tls.is_some() => {
                failure.with_kind(FailureKind::Tls)
            }
            _ => failure,
        })?;
        calls.check_streams()?;
        let shared = Shared {
            member_id: header.member_id,
            calls: Arc::new(calls),
            keepalives: Keepalives::default(),
            watches: Mutex::default(),
            connection,
        };
        Ok((Client { shared: Arc::new(shared) }, header, status))
    };
    let result = timeout_at(deadline, dialing).await.unwrap_or_else(|_| Err(Failure::late()));
    result.map_err(|failure| failure.of_dialing(endpoint))
}

impl Client {
    /// Sends a request and waits for the answer until the deadline. If the member does not accept
    /// the token, the client logs in again and repeats the request once. If the future is dropped,
    /// the request may be applied all the same.
    pub(crate) async fn call<R: Unary>(
        &self,
        request: R,
        deadline: Instant,
    ) -> Result<(Header, R::Response), Failure> {
        let answer = self.shared.calls.call(request, deadline).await;
        self.of_this_member(answer)
    }

    /// Like [`call`](Self::call), and does not wait for other requests if the server allows few at a
    /// time.
    pub(crate) async fn call_first<R: Unary>(
        &self,
        request: R,
        deadline: Instant,
    ) -> Result<(Header, R::Response), Failure> {
        let answer = self.shared.calls.call_first(request, deadline).await;
        self.of_this_member(answer)
    }

    /// Sets a watch, to learn whether the server is a member: a gRPC proxy that announces no URL
    /// answers everything else as a member does.
    pub(crate) async fn check_watches(&self, key: Bytes, deadline: Instant) -> Result<(), Failure> {
        let mut watch = self.watch(key, Bytes::new(), None, 0);
        let seen = timeout_at(deadline, watch.next()).await;
        seen.unwrap_or_else(|_| Err(Failure::late())).map(drop)
    }

    /// Renews a lease and returns its time to live in seconds, from the renewal on. A lease that
    /// does not exist (any more) is a failure with the kind `LeaseNotFound`. Renewals are sent one
    /// after the other. The header was filled before the renewal.
    pub(crate) async fn keep_alive(
        &self,
        lease: i64,
        deadline: Instant,
    ) -> Result<(Header, i64), Failure> {
        let answer = self.shared.keepalives.keep_alive(&self.shared.calls, lease, deadline).await;
        self.of_this_member(answer)
    }

    /// Refuses the answer of another member: behind a proxy, one connection may lead to several,
    /// and their answers together prove nothing. An answer without a header proves nothing anyway.
    fn of_this_member<T>(
        &self,
        answer: Result<(Header, T), Failure>,
    ) -> Result<(Header, T), Failure> {
        match answer {
            Ok((header, _)) if ![0, self.shared.member_id].contains(&header.member_id) => {
                let why = "the address leads to several members, as that of a proxy does: write \
                           the addresses of the members in the URL";
                Err(Failure::new(FailureKind::Protocol, Unknown, why))
            }
            answer => answer,
        }
    }

    /// Watches a key, or all keys from `key` up to, but without, `range_end` (if this is not empty),
    /// from now on. Changes up to the revision `after` are dropped, since a member that lags behind
    /// may send some that are older. `without` leaves out puts or deletions.
    pub(crate) fn watch(
        &self,
        key: Bytes,
        range_end: Bytes,
        without: Option<FilterType>,
        after: i64,
    ) -> Watch {
        let calls = &self.shared.calls;
        let mut watches = self.shared.watches.lock();
        let stream = match &*watches {
            Some(stream) if stream.is_open(calls.token().number) => Arc::clone(stream),
            _ => {
                let ended = self.shared.connection.ended.clone();
                Arc::clone(watches.insert(WatchStream::open(Arc::clone(calls), ended)))
            }
        };
        drop(watches);
        stream.watch(key, range_end, without, after)
    }

    /// Waits until the connection has ended.
    pub(crate) async fn closed(&self) {
        // Nothing is ever sent: this ends when the sender is gone.
        let _ = self.shared.connection.ended.clone().changed().await;
    }

    /// Returns the id of the member.
    pub(crate) fn member_id(&self) -> u64 {
        self.shared.member_id
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("member_id", &self.shared.member_id).finish_non_exhaustive()
    }
}
