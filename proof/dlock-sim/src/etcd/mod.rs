//! A cluster of etcd in memory: three members, with what a client of dlock can ask of them.
//!
//! It behaves as etcd 3.4 does, without users, proxies and TLS. `data` has the keys and leases of a
//! member, which the tests compare with a real server. `cluster` decides which requests are committed,
//! and when each member applies them.

#[cfg(dlock_sim)]
mod cluster;
mod data;
#[cfg(dlock_sim)]
mod grpc;
// With the fields that dlock sends and reads.
#[path = "../../../../dlock-etcd/src/client/messages.rs"]
#[expect(dead_code, reason = "some are only for clients")]
mod messages;
#[cfg(dlock_sim)]
mod store;
#[cfg(test)]
mod tests;

#[cfg(dlock_sim)]
pub(crate) use self::store::EtcdStore;

/// Returns a message with the head that gRPC puts before it.
fn framed(message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).expect("a message is short");
    [&[0], &length.to_be_bytes()[..], message].concat()
}

/// Removes the first message from these bytes, if it is complete.
fn next_message(bytes: &mut Vec<u8>) -> Option<Vec<u8>> {
    let length = u32::from_be_bytes(*bytes.get(1..)?.first_chunk()?);
    let end = 5 + usize::try_from(length).ok()?;
    (bytes.len() >= end).then(|| bytes.drain(..end).skip(5).collect())
}
