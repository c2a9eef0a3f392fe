//! The contract between the core and a store.

pub(crate) mod backend;
pub(crate) mod events;
pub(crate) mod request;
pub(crate) mod store_clock;
