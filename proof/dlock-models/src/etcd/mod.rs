//! The protocol on etcd: the local deadline of a session, and the queue of a name.

pub mod local_deadline;
pub mod queue;
