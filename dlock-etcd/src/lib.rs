//! The etcd backend of dlock. Claims of every lock kind are keys with the lease of one session.

mod client;
