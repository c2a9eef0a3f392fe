//! TLS by rustls, with the files that the URL or the builder names.

use std::path::PathBuf;

/// PEM files for TLS.
#[derive(Clone, Debug)]
pub(crate) struct Tls {
    /// The authorities that sign the certificates of the members.
    pub(crate) authorities: PathBuf,
    /// The client's own certificate and key.
    pub(crate) certificate: Option<(PathBuf, PathBuf)>,
}
