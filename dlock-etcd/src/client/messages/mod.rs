//! The messages of etcd's gRPC services, with only the fields that dlock uses.
//!
//! Each struct is the message of the same name in etcd's `rpc.proto` and `kv.proto`; the tags are
//! etcd's. They are written by hand, so that no build needs `protoc`. Unknown fields of an answer
//! are skipped.

mod kv;
mod lease;
mod member;
mod watch;

pub(crate) use kv::*;
pub(crate) use lease::*;
pub(crate) use member::*;
pub(crate) use watch::*;

/// A request of a unary call, which knows its method and its answer.
pub(crate) trait Unary: prost::Message + Clone + 'static {
    /// The path of the method, such as `/etcdserverpb.KV/Range`.
    const PATH: &'static str;
    /// The type of the answer.
    type Response: Response;
}

/// An answer with a header.
pub(crate) trait Response: prost::Message + Default + 'static {
    /// Removes the header from the answer.
    fn take_header(&mut self) -> Option<Header>;
}

/// `ResponseHeader`: the member that answered, and what it had applied.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub(crate) struct Header {
    #[prost(uint64, tag = "1")]
    pub(crate) cluster_id: u64,
    #[prost(uint64, tag = "2")]
    pub(crate) member_id: u64,
    /// The revision of the keyspace at the answer. 0 in the answer of `Status` before 3.5, and of
    /// some calls that don't concern keys.
    #[prost(int64, tag = "3")]
    pub(crate) revision: i64,
    /// The term of the last entry that the member has applied, which is not always raft's term.
    #[prost(uint64, tag = "4")]
    pub(crate) raft_term: u64,
}

/// Connects a request with its method and its answer.
macro_rules! unary {
    ($request:ident -> $response:ident, $path:literal) => {
        impl crate::client::messages::Unary for $request {
            const PATH: &'static str = $path;
            type Response = $response;
        }
        impl crate::client::messages::Response for $response {
            fn take_header(&mut self) -> Option<crate::client::messages::Header> {
                self.header.take()
            }
        }
    };
}
use unary;
