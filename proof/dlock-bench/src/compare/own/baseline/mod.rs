//! The baselines: minimal locks with each store's bare driver.

pub(super) mod etcd;
pub(in crate::compare) mod redis;
pub(super) mod sql;
pub(super) mod zk;
