//! The messages of etcd's gRPC services, with only the fields that dlock uses.
//!
//! Each is the message of the same name in etcd's `rpc.proto` and `kv.proto`, with etcd's tags. They
//! are written by hand, so that no build needs `protoc`. Fields that are not listed are not sent, and
//! are skipped in answers. Of a `oneof`, at most one field is set.

use std::fmt;

use prost::{Enumeration, Message, bytes::Bytes};

/// A request of a unary call, which knows its method and its answer.
pub(crate) trait Unary: Message + Clone + 'static {
    /// The path of the method, such as `/etcdserverpb.KV/Range`.
    const PATH: &'static str;
    /// The type of the answer.
    type Response: Response;
}

/// An answer with a header.
pub(crate) trait Response: Message + Default + 'static {
    /// Removes the header from the answer.
    fn take_header(&mut self) -> Option<Header>;
}

/// `ResponseHeader`: the member that answered, and what it had applied.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct Header {
    #[prost(uint64, tag = "1")]
    pub(crate) cluster_id: u64,
    #[prost(uint64, tag = "2")]
    pub(crate) member_id: u64,
    /// The revision of the keyspace. 0 in answers of some calls that don't concern keys.
    #[prost(int64, tag = "3")]
    pub(crate) revision: i64,
    /// The term of the last entry that the member has applied, which is not always raft's term.
    #[prost(uint64, tag = "4")]
    pub(crate) raft_term: u64,
}

/// Declares messages: each field with its tag and prost's word for its type. The first variant of an
/// enumeration must be 0, or prost leaves out another value.
macro_rules! messages {
    ($($(#[$about:meta])* $name:ident {
        $($(#[$of_field:meta])* $field:ident: $type:ty [$tag:tt $($kind:tt)+],)*
    })+) => {$(
        #[derive(Clone, PartialEq, Message)]
        $(#[$about])*
        pub(crate) struct $name {
            $($(#[$of_field])* #[prost($($kind)+, tag = $tag)] pub(crate) $field: $type,)*
        }
    )+};
}

/// Connects requests with their methods and answers.
macro_rules! methods {
    ($($request:ident -> $response:ident: $path:literal;)+) => {$(
        impl Unary for $request {
            const PATH: &'static str = concat!("/etcdserverpb.", $path);
            type Response = $response;
        }
    )+};
}

/// Declares the answers with a header.
macro_rules! headed {
    ($($response:ident)+) => {$(
        impl Response for $response {
            fn take_header(&mut self) -> Option<Header> {
                self.header.take()
            }
        }
    )+};
}

methods! {
    RangeRequest -> RangeResponse: "KV/Range";
    PutRequest -> Done: "KV/Put";
    DeleteRangeRequest -> DeleteRangeResponse: "KV/DeleteRange";
    TxnRequest -> TxnResponse: "KV/Txn";
    LeaseGrantRequest -> LeaseGrantResponse: "Lease/LeaseGrant";
    LeaseRevokeRequest -> Done: "Lease/LeaseRevoke";
    LeaseTimeToLiveRequest -> LeaseTtlResponse: "Lease/LeaseTimeToLive";
    StatusRequest -> StatusResponse: "Maintenance/Status";
    AlarmRequest -> AlarmResponse: "Maintenance/Alarm";
    MemberListRequest -> MemberListResponse: "Cluster/MemberList";
    AuthenticateRequest -> AuthenticateResponse: "Auth/Authenticate";
}

headed! {
    Done RangeResponse DeleteRangeResponse TxnResponse LeaseGrantResponse LeaseTtlResponse
    StatusResponse AlarmResponse MemberListResponse AuthenticateResponse
}

messages! {
    /// An answer of which dlock uses only the header.
    Done {
        header: Option<Header> ["1" message, optional],
    }

    LeaseGrantRequest {
        /// In seconds. The server may grant more.
        ttl: i64 ["1" int64],
    }

    LeaseGrantResponse {
        header: Option<Header> ["1" message, optional],
        id: i64 ["2" int64],
        /// In seconds, as granted.
        ttl: i64 ["3" int64],
    }

    LeaseRevokeRequest {
        id: i64 ["1" int64],
    }

    LeaseTimeToLiveRequest {
        id: i64 ["1" int64],
    }

    /// A message of the stream of renewals.
    LeaseKeepAliveRequest {
        id: i64 ["1" int64],
    }

    /// `LeaseTimeToLiveResponse`, and `LeaseKeepAliveResponse`.
    LeaseTtlResponse {
        header: Option<Header> ["1" message, optional],
        /// In seconds; less than 1 if there is no such lease.
        ttl: i64 ["3" int64],
    }

    WatchCreateRequest {
        key: Bytes ["1" bytes = "bytes"],
        range_end: Bytes ["2" bytes = "bytes"],
        filters: Vec<i32> ["5" enumeration = "FilterType", repeated],
        /// Unique on the stream, and not 0.
        watch_id: i64 ["7" int64],
    }

    WatchCancelRequest {
        watch_id: i64 ["1" int64],
    }

    /// A message to the stream of watches.
    WatchRequest {
        // A oneof.
        create: Option<WatchCreateRequest> ["1" message, optional],
        cancel: Option<WatchCancelRequest> ["2" message, optional],
    }

    /// A message of the stream of watches.
    WatchResponse {
        header: Option<Header> ["1" message, optional],
        /// -1 for a watch that was refused.
        watch_id: i64 ["2" int64],
        /// The answer to a [`WatchCreateRequest`].
        created: bool ["3" bool],
        /// The watch has ended, or was refused.
        canceled: bool ["4" bool],
        /// Not 0: the watch has ended, because what it had to tell was compacted.
        compact_revision: i64 ["5" int64],
        cancel_reason: String ["6" string],
        events: Vec<Event> ["11" message, repeated],
    }

    Event {
        kv: Option<EventKey> ["2" message, optional],
    }

    /// A [`KeyValue`], of which only the revision of the event is of interest.
    EventKey {
        mod_revision: i64 ["3" int64],
    }
}

/// The kind of change that a watch leaves out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub(crate) enum FilterType {
    NoPut = 0,
}

messages! {
    /// Reads the state of the member that is connected.
    StatusRequest {}

    StatusResponse {
        header: Option<Header> ["1" message, optional],
        /// Such as `3.5.1`.
        version: String ["2" string],
        /// The size of the database file, in bytes.
        db_size: i64 ["3" int64],
        /// The member that leads; 0 for none.
        leader: u64 ["4" uint64],
        is_learner: bool ["10" bool],
        /// The quota of the database file, in bytes; since 3.6, else 0.
        db_size_quota: i64 ["12" int64],
    }

    /// Reads the alarms of all members.
    AlarmRequest {}

    AlarmResponse {
        header: Option<Header> ["1" message, optional],
        alarms: Vec<AlarmMember> ["2" message, repeated],
    }

    AlarmMember {
        alarm: i32 ["2" enumeration = "AlarmType"],
    }

    MemberListRequest {
        /// Whether a majority has to agree; since 3.5.
        linearizable: bool ["1" bool],
    }

    MemberListResponse {
        header: Option<Header> ["1" message, optional],
        members: Vec<Member> ["2" message, repeated],
    }

    Member {
        id: u64 ["1" uint64],
        name: String ["2" string],
        /// The URLs for clients, as the member announces them. Empty until it has started.
        client_urls: Vec<String> ["4" string, repeated],
        is_learner: bool ["5" bool],
    }

    #[prost(skip_debug)]
    AuthenticateRequest {
        name: String ["1" string],
        password: String ["2" string],
    }

    #[prost(skip_debug)]
    AuthenticateResponse {
        header: Option<Header> ["1" message, optional],
        token: String ["2" string],
    }
}

/// The kind of an alarm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub(crate) enum AlarmType {
    None = 0,
    NoSpace = 1,
    Corrupt = 2,
}

impl fmt::Debug for AuthenticateRequest {
    /// Prints the request without the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AuthenticateRequest").field("name", &self.name).finish_non_exhaustive()
    }
}

impl fmt::Debug for AuthenticateResponse {
    /// Prints the answer without the token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AuthenticateResponse").finish_non_exhaustive()
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_are_encoded_as_etcd_reads_them() {
        let key = Bytes::from_static(b"k");
        let created = Compare::created(key.clone(), CompareResult::Equal, 0);
        assert_eq!(created.encode_to_vec(), b"\x10\x01\x1a\x01k\x28\x00");
        let end = Bytes::from_static(b"l");
        let modified = Compare::modified(key, CompareResult::Less, 5).up_to(end);
        assert_eq!(modified.encode_to_vec(), b"\x08\x02\x10\x02\x1a\x01k\x30\x05\x82\x04\x01l");
    }

    #[test]
    fn credentials_are_not_printed() {
        let (name, password) = ("joe".to_owned(), "secret".to_owned());
        let shown = format!("{:?}", AuthenticateRequest { name, password });
        assert!(shown.contains("joe") && !shown.contains("secret"), "{shown}");
        let answer = AuthenticateResponse { header: None, token: "secret".to_owned() };
        assert!(!format!("{answer:?}").contains("secret"));
    }
}
