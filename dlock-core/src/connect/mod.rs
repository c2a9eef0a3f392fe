//! Finds the backend for a URL.

pub(crate) mod registry;
pub(crate) mod servers;
pub(crate) mod suggest;
pub(crate) mod url;
