//! The ZooKeeper backend of dlock.
//!
//! Every lock kind on ephemeral sequential nodes of one session.

mod acl;
mod backend;
mod config;
mod create;
mod data;
mod enter;
mod error;
mod factory;
mod keep;
mod leave;
mod look;
mod many;
mod minder;
mod node;
mod own;
mod place;
mod queue;
mod session;
mod stand;
mod store;
mod tls;
mod wake;
mod warn;

pub use backend::ZooKeeper;
pub use config::ZkConfig;
pub use factory::ZK;
