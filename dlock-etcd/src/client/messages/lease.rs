//! The service `Lease`.

use prost::{Message, bytes::Bytes};

use super::{Header, Response, unary};

/// Requests a new lease.
#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct LeaseGrantRequest {
    /// In seconds. The server may grant more.
    #[prost(int64, tag = "1")]
    pub(crate) ttl: i64,
    /// The id of the lease; 0 lets the server choose.
    #[prost(int64, tag = "2")]
    pub(crate) id: i64,
}

/// The new lease.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct LeaseGrantResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<Header>,
    #[prost(int64, tag = "2")]
    pub(crate) id: i64,
    /// In seconds, as granted.
    #[prost(int64, tag = "3")]
    pub(crate) ttl: i64,
}

/// Ends a lease and deletes its keys.
#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct LeaseRevokeRequest {
    #[prost(int64, tag = "1")]
    pub(crate) id: i64,
}

/// The answer to a [`LeaseRevokeRequest`].
#[derive(Clone, PartialEq, Message)]
pub(crate) struct LeaseRevokeResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<Header>,
}

/// Renews a lease; sent on a stream.
#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct LeaseKeepAliveRequest {
    #[prost(int64, tag = "1")]
    pub(crate) id: i64,
}

/// The answer to a [`LeaseKeepAliveRequest`].
#[derive(Clone, PartialEq, Message)]
pub(crate) struct LeaseKeepAliveResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<Header>,
    #[prost(int64, tag = "2")]
    pub(crate) id: i64,
    /// In seconds, from the renewal on; 0 if there is no such lease.
    #[prost(int64, tag = "3")]
    pub(crate) ttl: i64,
}

impl Response for LeaseKeepAliveResponse {
    fn take_header(&mut self) -> Option<Header> {
        self.header.take()
    }
}

/// Reads the remaining time of a lease.
#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct LeaseTimeToLiveRequest {
    #[prost(int64, tag = "1")]
    pub(crate) id: i64,
    /// Whether to list the keys of the lease.
    #[prost(bool, tag = "2")]
    pub(crate) keys: bool,
}

/// The answer to a [`LeaseTimeToLiveRequest`].
#[derive(Clone, PartialEq, Message)]
pub(crate) struct LeaseTimeToLiveResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<Header>,
    #[prost(int64, tag = "2")]
    pub(crate) id: i64,
    /// The remaining time in seconds; -1 if there is no such lease.
    #[prost(int64, tag = "3")]
    pub(crate) ttl: i64,
    #[prost(int64, tag = "4")]
    pub(crate) granted_ttl: i64,
    #[prost(bytes = "bytes", repeated, tag = "5")]
    pub(crate) keys: Vec<Bytes>,
}

unary!(LeaseGrantRequest -> LeaseGrantResponse, "/etcdserverpb.Lease/LeaseGrant");
unary!(LeaseRevokeRequest -> LeaseRevokeResponse, "/etcdserverpb.Lease/LeaseRevoke");
unary!(LeaseTimeToLiveRequest -> LeaseTimeToLiveResponse, "/etcdserverpb.Lease/LeaseTimeToLive");
