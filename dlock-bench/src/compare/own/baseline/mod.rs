//! The baselines: the least that can be called a lock, by each store's bare driver.

pub(in crate::compare) mod redis;
pub(super) mod sql;
pub(super) mod zk;
