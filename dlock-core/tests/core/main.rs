//! The promises of the engine over the memory store, with faults and under paused time.
//!
//! All tests are one binary, since each binary takes time to link. `memory` and `trace` change
//! state of the whole process, so they have separate binaries.

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
mod multi;
mod raised_tokens;
mod renewal;
mod support;
