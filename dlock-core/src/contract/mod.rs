//! What a store and the core expect of each other.

pub(crate) mod admin;
pub(crate) mod backend;
pub(crate) mod events;
pub(crate) mod request;
pub(crate) mod state;
pub(crate) mod store_clock;
