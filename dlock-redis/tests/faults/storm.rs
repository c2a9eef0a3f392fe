//! The connection URLs of the load.

/// The address with options that fit short leases and a look at what is left, and these.
pub(crate) fn with_options(url: &str, options: &str) -> String {
    let and = if options.is_empty() { "" } else { "&" };
    format!("{url}?dlock.response_timeout=500ms&dlock.retention=1s{and}{options}")
}
