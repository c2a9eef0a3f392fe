//! From a URL to a backend.

pub(crate) mod meant;
pub(crate) mod registry;
pub(crate) mod url;
