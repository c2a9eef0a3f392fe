//! The types that an application uses.

mod continued;
pub(crate) mod election;
pub(crate) mod health;
pub(crate) mod job;
pub(crate) mod locks;
