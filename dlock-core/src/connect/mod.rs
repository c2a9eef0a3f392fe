//! Finds the backend for a URL.

pub(crate) mod meant;
pub(crate) mod registry;
pub(crate) mod servers;
pub(crate) mod url;
