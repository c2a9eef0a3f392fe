//! Sequences of operations that are played on a backend and on the model side by side.

pub(crate) mod guards;
pub(crate) mod verbs;
