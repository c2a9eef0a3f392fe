//! Sequences of operations that are played on a backend and on the model in parallel.

pub(crate) mod guards;
pub(crate) mod verbs;
