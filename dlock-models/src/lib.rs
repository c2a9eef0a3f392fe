//! The protocols of dlock as models, of which every reachable state is visited.
//!
//! Each module models one protocol with few clients and few faults, and says which source file it
//! stands for. Its rules are switches. With all of them no property is ever violated; with any of
//! them taken out, a way to a violation is found, so the model is not one in which nothing can go
//! wrong, and no rule is there for nothing.
//!
//! That a waiter is woken is checked without fairness: in every reachable state, what is under way
//! and what timers bring about is played to its end, with no more faults, and then somebody has to
//! hold the lock or nobody wait.

pub mod check;
pub mod hand_off;
pub mod lease;
pub mod quorum;
pub mod redis_hand_over;
pub mod redis_keys;
pub mod redis_late;
pub mod sql_queue;
pub mod zookeeper;
