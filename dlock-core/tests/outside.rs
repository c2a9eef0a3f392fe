//! Faults that were found from outside, and their like.

#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests, and their helpers")]

// Tests of what is logged need a process in which nobody else listens.
#[path = "core/common.rs"]
mod common;

mod outside {
    mod causes;
    mod lease;
    mod log;
    #[cfg(feature = "metrics")]
    mod metrics;
    mod offset;
    mod outage;
    mod runtime;
    mod store;
    mod work;
}
