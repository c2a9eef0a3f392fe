//! The service `Watch`: one stream of requests, and one of answers.

use prost::{Enumeration, Message, Oneof, bytes::Bytes};

use super::{Header, KeyValue};

/// The kind of change that a watch leaves out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub(crate) enum FilterType {
    NoPut = 0,
    NoDelete = 1,
}

/// Requests a watch.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct WatchCreateRequest {
    #[prost(bytes = "bytes", tag = "1")]
    pub(crate) key: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    pub(crate) range_end: Bytes,
    #[prost(enumeration = "FilterType", repeated, tag = "5")]
    pub(crate) filters: Vec<i32>,
    /// Unique on the stream, and not 0: with 0 the server chooses.
    #[prost(int64, tag = "7")]
    pub(crate) watch_id: i64,
}

/// Ends a watch.
#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct WatchCancelRequest {
    #[prost(int64, tag = "1")]
    pub(crate) watch_id: i64,
}

/// A message to the server.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct WatchRequest {
    #[prost(oneof = "WatchOrder", tags = "1, 2")]
    pub(crate) order: Option<WatchOrder>,
}

/// The order of a [`WatchRequest`].
#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum WatchOrder {
    #[prost(message, tag = "1")]
    Create(WatchCreateRequest),
    #[prost(message, tag = "2")]
    Cancel(WatchCancelRequest),
}

/// The kind of an [`Event`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub(crate) enum EventType {
    Put = 0,
    Delete = 1,
}

/// A change of a key.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Event {
    #[prost(enumeration = "EventType", tag = "1")]
    pub(crate) kind: i32,
    /// The key after the change. For a deletion, only the key and the revision of the deletion, as
    /// `mod_revision`.
    #[prost(message, optional, tag = "2")]
    pub(crate) kv: Option<KeyValue>,
}

/// A message of the server.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct WatchResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<Header>,
    /// -1 for a watch that was refused.
    #[prost(int64, tag = "2")]
    pub(crate) watch_id: i64,
    /// The answer to a [`WatchCreateRequest`].
    #[prost(bool, tag = "3")]
    pub(crate) created: bool,
    /// The watch has ended, or was refused.
    #[prost(bool, tag = "4")]
    pub(crate) canceled: bool,
    /// Not 0: the watch has ended, because what it had to tell was compacted.
    #[prost(int64, tag = "5")]
    pub(crate) compact_revision: i64,
    #[prost(string, tag = "6")]
    pub(crate) cancel_reason: String,
    #[prost(message, repeated, tag = "11")]
    pub(crate) events: Vec<Event>,
}
