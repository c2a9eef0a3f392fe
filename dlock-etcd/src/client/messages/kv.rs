//! The service `KV`: keys, and transactions over them.

use prost::{Enumeration, Message, Oneof, bytes::Bytes};

use super::{Header, unary};

/// `KeyValue`: a key with its revisions.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct KeyValue {
    #[prost(bytes = "bytes", tag = "1")]
    pub(crate) key: Bytes,
    #[prost(int64, tag = "2")]
    pub(crate) create_revision: i64,
    #[prost(int64, tag = "3")]
    pub(crate) mod_revision: i64,
    #[prost(bytes = "bytes", tag = "5")]
    pub(crate) value: Bytes,
    /// The lease of the key; 0 for none.
    #[prost(int64, tag = "6")]
    pub(crate) lease: i64,
}

/// The order of the keys of a [`RangeRequest`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub(crate) enum SortOrder {
    None = 0,
    Ascend = 1,
    Descend = 2,
}

/// The field by which a [`RangeRequest`] sorts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub(crate) enum SortTarget {
    Key = 0,
    Version = 1,
    Create = 2,
    Mod = 3,
    Value = 4,
}

/// Reads a key, or all keys from `key` up to, but without, `range_end`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct RangeRequest {
    #[prost(bytes = "bytes", tag = "1")]
    pub(crate) key: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    pub(crate) range_end: Bytes,
    /// The largest number of keys to return; 0 for all.
    #[prost(int64, tag = "3")]
    pub(crate) limit: i64,
    /// The revision to read at; 0 for the newest.
    #[prost(int64, tag = "4")]
    pub(crate) revision: i64,
    #[prost(enumeration = "SortOrder", tag = "5")]
    pub(crate) sort_order: i32,
    #[prost(enumeration = "SortTarget", tag = "6")]
    pub(crate) sort_target: i32,
    /// The member answers by itself, from what it has applied.
    #[prost(bool, tag = "7")]
    pub(crate) serializable: bool,
    #[prost(bool, tag = "8")]
    pub(crate) keys_only: bool,
    #[prost(bool, tag = "9")]
    pub(crate) count_only: bool,
    /// Only keys that were created at this revision or before; 0 for no limit.
    #[prost(int64, tag = "13")]
    pub(crate) max_create_revision: i64,
}

/// The keys of a [`RangeRequest`].
#[derive(Clone, PartialEq, Message)]
pub(crate) struct RangeResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<Header>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) kvs: Vec<KeyValue>,
    /// There are more keys than the limit.
    #[prost(bool, tag = "3")]
    pub(crate) more: bool,
    /// The number of keys in the range, whatever the limit.
    #[prost(int64, tag = "4")]
    pub(crate) count: i64,
}

/// Writes a key.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct PutRequest {
    #[prost(bytes = "bytes", tag = "1")]
    pub(crate) key: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    pub(crate) value: Bytes,
    /// The lease of the key; 0 for none.
    #[prost(int64, tag = "3")]
    pub(crate) lease: i64,
}

/// The answer to a [`PutRequest`].
#[derive(Clone, PartialEq, Message)]
pub(crate) struct PutResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<Header>,
}

/// Deletes a key, or all keys from `key` up to, but without, `range_end`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct DeleteRangeRequest {
    #[prost(bytes = "bytes", tag = "1")]
    pub(crate) key: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    pub(crate) range_end: Bytes,
}

/// The answer to a [`DeleteRangeRequest`].
#[derive(Clone, PartialEq, Message)]
pub(crate) struct DeleteRangeResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<Header>,
    /// The number of keys that were deleted.
    #[prost(int64, tag = "2")]
    pub(crate) deleted: i64,
}

/// How a [`Compare`] compares the key with the given revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub(crate) enum CompareResult {
    Equal = 0,
    Greater = 1,
    Less = 2,
    NotEqual = 3,
}

/// The field of the key that a [`Compare`] looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub(crate) enum CompareTarget {
    Version = 0,
    Create = 1,
    Mod = 2,
    Value = 3,
    Lease = 4,
}

/// A condition of a transaction. Over a range, it has to be true of all keys. A key that is absent,
/// and a range without keys, has the revision 0.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Compare {
    #[prost(enumeration = "CompareResult", tag = "1")]
    result: i32,
    #[prost(enumeration = "CompareTarget", tag = "2")]
    target: i32,
    #[prost(bytes = "bytes", tag = "3")]
    key: Bytes,
    // The two are members of a oneof in etcd's file: at most one is set.
    #[prost(int64, optional, tag = "5")]
    create_revision: Option<i64>,
    #[prost(int64, optional, tag = "6")]
    mod_revision: Option<i64>,
    #[prost(bytes = "bytes", tag = "64")]
    range_end: Bytes,
}

impl Compare {
    /// Compares the create revision of a key: `result` is its relation to `revision`.
    pub(crate) fn created(key: Bytes, result: CompareResult, revision: i64) -> Self {
        Self {
            result: result.into(),
            target: CompareTarget::Create.into(),
            key,
            create_revision: Some(revision),
            ..Self::default()
        }
    }

    /// Compares the revision of the last change of a key: `result` is its relation to `revision`.
    pub(crate) fn modified(key: Bytes, result: CompareResult, revision: i64) -> Self {
        Self {
            result: result.into(),
            target: CompareTarget::Mod.into(),
            key,
            mod_revision: Some(revision),
            ..Self::default()
        }
    }

    /// Compares all keys from the key up to, but without, `end`.
    pub(crate) fn up_to(self, end: Bytes) -> Self {
        Self { range_end: end, ..self }
    }
}

/// A transaction: if all conditions are true, all of `success`, else all of `failure`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct TxnRequest {
    #[prost(message, repeated, tag = "1")]
    pub(crate) compare: Vec<Compare>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) success: Vec<RequestOp>,
    #[prost(message, repeated, tag = "3")]
    pub(crate) failure: Vec<RequestOp>,
}

/// The answer to a [`TxnRequest`].
#[derive(Clone, PartialEq, Message)]
pub(crate) struct TxnResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<Header>,
    /// Whether all conditions were true.
    #[prost(bool, tag = "2")]
    pub(crate) succeeded: bool,
    /// The answers to the operations, in their order.
    #[prost(message, repeated, tag = "3")]
    pub(crate) responses: Vec<ResponseOp>,
}

impl TxnResponse {
    /// Returns the answers of the reads, in their order. Those of nested transactions are not
    /// among them.
    pub(crate) fn ranges(&mut self) -> impl Iterator<Item = RangeResponse> {
        self.responses.drain(..).filter_map(|response| match response.response {
            Some(Answer::Range(range)) => Some(range),
            _ => None,
        })
    }
}

/// An operation of a transaction. Made by `into` from a request.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct RequestOp {
    #[prost(oneof = "Op", tags = "1, 2, 3, 4")]
    op: Option<Op>,
}

/// The operation of a [`RequestOp`].
#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum Op {
    #[prost(message, tag = "1")]
    Range(RangeRequest),
    #[prost(message, tag = "2")]
    Put(PutRequest),
    #[prost(message, tag = "3")]
    DeleteRange(DeleteRangeRequest),
    #[prost(message, tag = "4")]
    Txn(TxnRequest),
}

impl From<RangeRequest> for RequestOp {
    fn from(request: RangeRequest) -> Self {
        Self { op: Some(Op::Range(request)) }
    }
}

impl From<PutRequest> for RequestOp {
    fn from(request: PutRequest) -> Self {
        Self { op: Some(Op::Put(request)) }
    }
}

impl From<DeleteRangeRequest> for RequestOp {
    fn from(request: DeleteRangeRequest) -> Self {
        Self { op: Some(Op::DeleteRange(request)) }
    }
}

impl From<TxnRequest> for RequestOp {
    fn from(request: TxnRequest) -> Self {
        Self { op: Some(Op::Txn(request)) }
    }
}

/// The answer to a [`RequestOp`].
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ResponseOp {
    #[prost(oneof = "Answer", tags = "1, 2, 3, 4")]
    pub(crate) response: Option<Answer>,
}

/// The answer of a [`ResponseOp`].
#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum Answer {
    #[prost(message, tag = "1")]
    Range(RangeResponse),
    #[prost(message, tag = "2")]
    Put(PutResponse),
    #[prost(message, tag = "3")]
    DeleteRange(DeleteRangeResponse),
    #[prost(message, tag = "4")]
    Txn(TxnResponse),
}

unary!(RangeRequest -> RangeResponse, "/etcdserverpb.KV/Range");
unary!(PutRequest -> PutResponse, "/etcdserverpb.KV/Put");
unary!(DeleteRangeRequest -> DeleteRangeResponse, "/etcdserverpb.KV/DeleteRange");
unary!(TxnRequest -> TxnResponse, "/etcdserverpb.KV/Txn");
