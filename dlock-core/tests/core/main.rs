//! The engine over the memory store: what it promises, with faults and under paused time.
//!
//! One binary, since each more takes a while to link. Nothing here changes what a whole process
//! shares; `memory` and `trace` do, and are binaries of their own.

mod admin;
mod clean_up;
mod election;
mod error_context;
mod events;
mod golden;
mod handoff;
mod health;
mod job;
mod kinds;
mod lock_delay;
#[cfg(feature = "metrics")]
mod metrics;
mod raised_tokens;
mod renewal;
mod support;
