//! TLS, with the files that the URL or the builder names.

#[cfg(feature = "tls")]
use std::path::Path;

use dlock_core::{ConfigIssue, Error, ErrorKind, TlsFiles};
use zookeeper_client::{Client, Connector, Error as ZkError};

/// Connects with TLS.
#[cfg(feature = "tls")]
pub(crate) async fn connect(
    connector: Connector,
    tls: &TlsFiles,
    cluster: &str,
) -> Result<Client, Error> {
    use zookeeper_client::TlsOptions;

    let refused = |error: ZkError| {
        Error::config(
            ConfigIssue::Access,
            format!(
                "the files of dlock.tls_* can't be used ({error}): check that they are PEM files \
                 and belong together"
            ),
        )
    };
    let mut options = TlsOptions::new();
    if let Some(authorities) = &tls.authorities {
        options = options.with_pem_ca(&read(authorities)?).map_err(refused)?;
    }
    if let Some((certificate, key)) = &tls.certificate {
        let (certificate, key) = (read(certificate)?, read(key)?);
        options = options.with_pem_identity(&certificate, &key).map_err(refused)?;
    }
    provide_cryptography();
    connector.with_tls(options).secure_connect(cluster).await.map_err(explain)
}

/// Returns the error to show to people.
pub(crate) fn explain(error: ZkError) -> Error {
    match error {
        // The driver does not report the reason.
        ZkError::NoHosts | ZkError::Timeout => Error::new(
            ErrorKind::Unavailable,
            "no server can be reached by TLS, or none that takes writes: check that they run, that \
             a majority of them is connected, that the port is one for TLS, that dlock.tls_ca is \
             the authority of their certificates, that these are for the names in the URL, and \
             that the servers accept dlock.tls_cert and dlock.tls_key",
        )
        .with_source(error),
        error => crate::error::explain(error),
    }
}

/// Installs the cryptography provider of the process, which the driver needs. A choice of the
/// application stays.
#[cfg(feature = "tls")]
fn provide_cryptography() {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // Another thread may have been faster.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    }
}

/// Refuses a host for which no certificate is possible, such as `127.1`, since the driver panics
/// for it.
#[cfg(feature = "tls")]
pub(crate) fn check_host(host: &str) -> Result<(), Error> {
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    let name = name.trim_start_matches('[').trim_end_matches(']');
    match rustls::pki_types::ServerName::try_from(name) {
        Ok(_) => Ok(()),
        Err(_) => Err(Error::config(
            ConfigIssue::Url,
            format!(
                "{name:.80} is neither a host name nor a complete address: correct it, since TLS \
                 needs one"
            ),
        )),
    }
}

#[cfg(feature = "tls")]
fn read(file: &Path) -> Result<String, Error> {
    std::fs::read_to_string(file).map_err(|error| {
        let file = file.display();
        Error::config(
            ConfigIssue::Access,
            format!("{file} can't be read ({error}): check the path in dlock.tls_*"),
        )
    })
}

/// Refuses TLS, as the configuration has already done.
#[cfg(not(feature = "tls"))]
#[expect(clippy::unused_async, reason = "the same shape as with TLS")]
pub(crate) async fn connect(_: Connector, _: &TlsFiles, _: &str) -> Result<Client, Error> {
    Err(Error::config(
        ConfigIssue::MissingFeature,
        "zks: needs the Cargo feature \"tls\": enable it for dlock in Cargo.toml",
    ))
}
