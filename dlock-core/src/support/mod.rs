//! Helpers that the engine and its users share. They depend on neither.

pub(crate) mod backoff;
pub(crate) mod failure;
pub(crate) mod labels;
pub(crate) mod lease_warning;
pub(crate) mod meter;
#[cfg(feature = "metrics")]
pub mod metrics;
pub(crate) mod race;
pub(crate) mod retry;
pub(crate) mod tasks;
