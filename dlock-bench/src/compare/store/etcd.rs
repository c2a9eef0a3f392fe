//! The counters of an etcd server.

use dlock_testlab::{Stop, etcd::EtcdServer};

use crate::Failure;

/// Returns the number of messages that clients have sent, also on streams.
pub(super) async fn requests(server: &EtcdServer) -> Result<f64, Failure> {
    server.metric("grpc_server_msg_received_total").await.map_err(no_server)
}

/// Returns the number of keys without the markers of sessions.
pub(super) async fn entries(server: &EtcdServer) -> Result<f64, Failure> {
    let keys = server.keys_under("").await.map_err(no_server)?;
    let keys = keys.iter().filter(|key| !key.contains("/%session/") && !key.starts_with("/ring-"));
    Ok(f64::from(u32::try_from(keys.count())?))
}

/// Returns the bytes of the database that are in use, old revisions included.
pub(super) async fn bytes(server: &EtcdServer) -> Result<f64, Failure> {
    server.metric("etcd_mvcc_db_total_size_in_use_in_bytes").await.map_err(no_server)
}

/// Returns the failure of a server that does not answer.
fn no_server(stop: Stop) -> Failure {
    format!("no server: {stop:?}").into()
}
