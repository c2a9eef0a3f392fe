//! Faults that were found from outside, and their like.

#![expect(clippy::disallowed_methods, reason = "tests start tasks of their own")]

mod common;

mod outside {
    mod causes;
    mod lease;
    mod log;
    #[cfg(feature = "metrics")]
    mod metrics;
    mod outage;
    mod runtime;
    mod store;
    mod work;
}
