//! Finds the backend for a URL.

pub(crate) mod meant;
pub(crate) mod registry;
pub(crate) mod url;
