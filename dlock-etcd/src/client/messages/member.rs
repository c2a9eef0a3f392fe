//! The services `Maintenance`, `Cluster` and `Auth`.

use std::fmt;

use prost::{Enumeration, Message};

use super::{Header, unary};

/// Reads the state of the member that is connected.
#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct StatusRequest {}

/// The state of a member. Fields that its version does not know are empty.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct StatusResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<Header>,
    /// Such as `3.5.1`.
    #[prost(string, tag = "2")]
    pub(crate) version: String,
    /// The size of the database file, in bytes.
    #[prost(int64, tag = "3")]
    pub(crate) db_size: i64,
    /// The member that leads; 0 for none.
    #[prost(uint64, tag = "4")]
    pub(crate) leader: u64,
    /// Raft's term.
    #[prost(uint64, tag = "6")]
    pub(crate) raft_term: u64,
    /// Alarms and missing leaders, as text.
    #[prost(string, repeated, tag = "8")]
    pub(crate) errors: Vec<String>,
    #[prost(int64, tag = "9")]
    pub(crate) db_size_in_use: i64,
    #[prost(bool, tag = "10")]
    pub(crate) is_learner: bool,
    /// The quota of the database file, in bytes; since 3.6, else 0.
    #[prost(int64, tag = "12")]
    pub(crate) db_size_quota: i64,
}

/// The kind of an alarm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub(crate) enum AlarmType {
    None = 0,
    NoSpace = 1,
    Corrupt = 2,
}

/// Reads the alarms of all members.
#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct AlarmRequest {}

/// An alarm of a member.
#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct AlarmMember {
    #[prost(uint64, tag = "1")]
    pub(crate) member_id: u64,
    #[prost(enumeration = "AlarmType", tag = "2")]
    pub(crate) alarm: i32,
}

/// The alarms of all members.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct AlarmResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<Header>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) alarms: Vec<AlarmMember>,
}

/// Reads the list of members.
#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct MemberListRequest {
    /// Whether a majority has to agree; since 3.5.
    #[prost(bool, tag = "1")]
    pub(crate) linearizable: bool,
}

/// A member of the cluster.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Member {
    #[prost(uint64, tag = "1")]
    pub(crate) id: u64,
    #[prost(string, tag = "2")]
    pub(crate) name: String,
    /// The URLs for clients, as the member announces them. Empty until it has started.
    #[prost(string, repeated, tag = "4")]
    pub(crate) client_urls: Vec<String>,
    #[prost(bool, tag = "5")]
    pub(crate) is_learner: bool,
}

/// The list of members.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct MemberListResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<Header>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) members: Vec<Member>,
}

/// Requests a token for a user.
#[derive(Clone, PartialEq, Message)]
#[prost(skip_debug)]
pub(crate) struct AuthenticateRequest {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(string, tag = "2")]
    pub(crate) password: String,
}

impl fmt::Debug for AuthenticateRequest {
    /// Prints the request without the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AuthenticateRequest").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The token of a user.
#[derive(Clone, PartialEq, Message)]
#[prost(skip_debug)]
pub(crate) struct AuthenticateResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<Header>,
    #[prost(string, tag = "2")]
    pub(crate) token: String,
}

impl fmt::Debug for AuthenticateResponse {
    /// Prints the answer without the token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AuthenticateResponse").finish_non_exhaustive()
    }
}

unary!(StatusRequest -> StatusResponse, "/etcdserverpb.Maintenance/Status");
unary!(AlarmRequest -> AlarmResponse, "/etcdserverpb.Maintenance/Alarm");
unary!(MemberListRequest -> MemberListResponse, "/etcdserverpb.Cluster/MemberList");
unary!(AuthenticateRequest -> AuthenticateResponse, "/etcdserverpb.Auth/Authenticate");
