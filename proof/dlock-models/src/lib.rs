//! The protocols of dlock as models. The checker visits every reachable state of each model.
//!
//! Each module models one protocol with few clients and few faults, and names the source files that
//! it models. Its rules are switches. With all rules on, no property is violated in any state. With
//! any one rule off, the checker finds a path to a violation. This shows that the model can fail,
//! and that every rule is needed.
//!
//! The models check that a waiter is woken without an assumption of fairness: from every reachable
//! state, the model runs all pending steps and timers without further faults. After that, either a
//! client holds the lock or no client waits.

pub mod check;
pub mod etcd;
pub mod hand_off;
pub mod late_renewal;
pub mod lease;
pub mod multi;
pub mod multi_stores;
pub mod quorum;
pub mod redis_guard;
pub mod redis_hand_off;
pub mod redis_keys;
pub mod redis_late;
pub mod redis_take;
pub mod redis_tokens;
pub mod sql_queue;
pub mod zookeeper;
pub mod zookeeper_session;
