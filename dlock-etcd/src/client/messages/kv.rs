//! The messages of the service `KV`: keys, and transactions over them.

use prost::{Enumeration, Message, bytes::Bytes};

use super::{Header, Unary};

messages! {
    /// A key with its revisions.
    KeyValue {
        key: Bytes ["1" bytes = "bytes"],
        create_revision: i64 ["2" int64],
        mod_revision: i64 ["3" int64],
        value: Bytes ["5" bytes = "bytes"],
        /// 0 for none. Since 3.7 also 0 if only keys are read.
        lease: i64 ["6" int64],
    }

    /// Reads a key, or all keys from `key` up to, but without, `range_end`.
    RangeRequest {
        key: Bytes ["1" bytes = "bytes"],
        range_end: Bytes ["2" bytes = "bytes"],
        /// The largest number of keys to return; 0 for all.
        limit: i64 ["3" int64],
        /// The revision to read at; 0 for the newest.
        revision: i64 ["4" int64],
        sort_order: i32 ["5" enumeration = "SortOrder"],
        sort_target: i32 ["6" enumeration = "SortTarget"],
        /// The member answers by itself, from what it has applied.
        serializable: bool ["7" bool],
        keys_only: bool ["8" bool],
        /// Only keys that were created at this revision or before; 0 for no limit.
        max_create_revision: i64 ["13" int64],
    }

    RangeResponse {
        header: Option<Header> ["1" message, optional],
        kvs: Vec<KeyValue> ["2" message, repeated],
        /// There are more keys than the limit.
        more: bool ["3" bool],
    }

    PutRequest {
        key: Bytes ["1" bytes = "bytes"],
        value: Bytes ["2" bytes = "bytes"],
        /// 0 for none.
        lease: i64 ["3" int64],
    }

    /// Deletes a key, or all keys from `key` up to, but without, `range_end`.
    DeleteRangeRequest {
        key: Bytes ["1" bytes = "bytes"],
        range_end: Bytes ["2" bytes = "bytes"],
    }

    DeleteRangeResponse {
        header: Option<Header> ["1" message, optional],
        /// The number of keys that were there.
        deleted: i64 ["2" int64],
    }

    /// A condition of a transaction. Over a range, it has to be true of all keys. A key that is
    /// absent, and a range without keys, has the revision 0.
    Compare {
        result: i32 ["1" enumeration = "CompareResult"],
        target: i32 ["2" int32],
        key: Bytes ["3" bytes = "bytes"],
        // A oneof.
        create_revision: Option<i64> ["5" int64, optional],
        mod_revision: Option<i64> ["6" int64, optional],
        range_end: Bytes ["64" bytes = "bytes"],
    }

    /// If all conditions are true, all of `success`, else all of `failure`.
    TxnRequest {
        compare: Vec<Compare> ["1" message, repeated],
        success: Vec<RequestOp> ["2" message, repeated],
        failure: Vec<RequestOp> ["3" message, repeated],
    }

    TxnResponse {
        header: Option<Header> ["1" message, optional],
        /// Whether all conditions were true.
        succeeded: bool ["2" bool],
        responses: Vec<ResponseOp> ["3" message, repeated],
    }

    /// An operation of a transaction. Made by `into` from a request.
    RequestOp {
        // A oneof.
        range: Option<RangeRequest> ["1" message, optional],
        put: Option<PutRequest> ["2" message, optional],
        delete_range: Option<DeleteRangeRequest> ["3" message, optional],
        /// A transaction with conditions of its own.
        txn: Option<TxnRequest> ["4" message, optional],
    }

    /// The answer to an operation of a transaction, if it was no put.
    ResponseOp {
        // A oneof.
        range: Option<RangeResponse> ["1" message, optional],
        delete_range: Option<DeleteRangeResponse> ["3" message, optional],
        txn: Option<TxnResponse> ["4" message, optional],
    }
}

/// The order of the keys of a [`RangeRequest`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub(crate) enum SortOrder {
    None = 0,
    Descend = 2,
}

/// The field by which a [`RangeRequest`] sorts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub(crate) enum SortTarget {
    Key = 0,
    Create = 2,
}

/// The relation of a key's revision to the given one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub(crate) enum CompareResult {
    Equal = 0,
    Less = 2,
}

/// The values of `Compare.target`.
const CREATE_REVISION: i32 = 1;
const MOD_REVISION: i32 = 2;

impl Compare {
    /// Compares the create revision of a key.
    pub(crate) fn created(key: Bytes, result: CompareResult, revision: i64) -> Self {
        let (result, target) = (result.into(), CREATE_REVISION);
        Self { result, target, key, create_revision: Some(revision), ..Self::default() }
    }

    /// Compares the revision of the last change of a key.
    pub(crate) fn modified(key: Bytes, result: CompareResult, revision: i64) -> Self {
        let (result, target) = (result.into(), MOD_REVISION);
        Self { result, target, key, mod_revision: Some(revision), ..Self::default() }
    }

    /// Compares all keys from the key up to, but without, `end`.
    pub(crate) fn up_to(self, end: Bytes) -> Self {
        Self { range_end: end, ..self }
    }
}

/// A request that can also be an operation of a transaction.
pub(crate) trait Op: Unary + Into<RequestOp> {
    /// Returns the answer to this operation.
    fn answer(response: ResponseOp) -> Option<Self::Response>;
}

impl Op for TxnRequest {
    fn answer(response: ResponseOp) -> Option<TxnResponse> {
        response.txn
    }
}

impl Op for DeleteRangeRequest {
    fn answer(response: ResponseOp) -> Option<DeleteRangeResponse> {
        response.delete_range
    }
}

impl TxnResponse {
    /// Removes the answers of the reads, in their order.
    pub(crate) fn ranges(&mut self) -> impl Iterator<Item = RangeResponse> {
        self.responses.drain(..).filter_map(|response| response.range)
    }
}

impl From<TxnRequest> for RequestOp {
    fn from(request: TxnRequest) -> Self {
        Self { txn: Some(request), ..Self::default() }
    }
}

impl From<RangeRequest> for RequestOp {
    fn from(request: RangeRequest) -> Self {
        Self { range: Some(request), ..Self::default() }
    }
}

impl From<PutRequest> for RequestOp {
    fn from(request: PutRequest) -> Self {
        Self { put: Some(request), ..Self::default() }
    }
}

impl From<DeleteRangeRequest> for RequestOp {
    fn from(request: DeleteRangeRequest) -> Self {
        Self { delete_range: Some(request), ..Self::default() }
    }
}
