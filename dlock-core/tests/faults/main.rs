//! The engine over stores with faults: errors, losses, outages and runtimes that end.
//!
//! They have a separate process, because they read the log, and no other test may log meanwhile.

#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests, and their helpers")]

mod ended_claims;
mod error_causes;
mod lease;
mod log;
#[cfg(feature = "metrics")]
mod metrics;
mod offset;
mod outage;
mod runtime;
mod store;
#[path = "../core/support.rs"]
mod support;
mod turns;
mod work;
