//! The types that an application uses.

pub(crate) mod election;
pub(crate) mod health;
pub(crate) mod job;
pub(crate) mod locks;
mod tokens;
