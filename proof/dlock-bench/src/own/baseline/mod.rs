//! The baselines: minimal locks with each store's bare driver.

pub(crate) mod etcd;
pub(crate) mod redis;
pub(crate) mod sql;
pub(crate) mod zk;
