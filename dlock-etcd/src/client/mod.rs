//! A small client of etcd: one connection to one member.

mod failure;
mod messages;
mod tls;
mod watch;

use std::sync::Arc;

pub(crate) use failure::{Failure, FailureKind};
pub(crate) use messages::*;
pub(crate) use prost::bytes::Bytes;
pub(crate) use tls::Tls;
pub(crate) use watch::{Change, Seen, Watch};

use tokio::time::Instant;

/// The credentials of a client and its TLS files.
#[derive(Clone, Default)]
pub(crate) struct Access {
    /// The user and the password.
    pub(crate) login: Option<(String, String)>,
    pub(crate) tls: Option<Tls>,
}

/// One connection to one member. Clones share it. It never connects again: after it has broken,
/// all calls fail with [`FailureKind::Disconnected`] and [`dial`] makes a new one. It is closed when
/// the last clone is dropped.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {}

/// Connects to the member at `endpoint` (`host:port`), logs in, and asks for its status. Nothing is
/// applied if it fails: each failure is `NotApplied`.
pub(crate) async fn dial(
    endpoint: &str,
    access: &Access,
    deadline: Instant,
) -> Result<(Client, Header, StatusResponse), Failure> {
    let _ = (endpoint, access, deadline);
    unimplemented!()
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
        let _ = (request, deadline, &self.shared);
        unimplemented!()
    }

    /// Renews a lease and returns its time to live in seconds, from the renewal on. A lease that
    /// does not exist (any more) is a failure with the kind `LeaseNotFound`. Calls are sent one
    /// after the other. The header was filled before the renewal.
    pub(crate) async fn keep(&self, lease: i64, deadline: Instant) -> Result<(Header, i64), Failure> {
        let _ = (lease, deadline);
        unimplemented!()
    }

    /// Watches a key, or all keys from `key` up to, but without, `range_end` (if this is not empty),
    /// from now on. `without` leaves out puts or deletions.
    pub(crate) fn watch(&self, key: Bytes, range_end: Bytes, without: Option<FilterType>) -> Watch {
        let _ = (key, range_end, without);
        unimplemented!()
    }

    /// Waits until the connection has ended.
    pub(crate) async fn closed(&self) {
        unimplemented!()
    }

    /// Returns the id of the member.
    pub(crate) fn member_id(&self) -> u64 {
        unimplemented!()
    }
}
