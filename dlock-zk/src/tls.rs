//! TLS, with what the URL or the builder names.

#[cfg(feature = "tls")]
use std::path::Path;

use dlock_core::{ConfigIssue, Error};
use zookeeper_client::{Client, Connector};

use crate::config::Tls;

/// Connects by TLS.
#[cfg(feature = "tls")]
pub(crate) async fn connect(
    connector: Connector,
    tls: &Tls,
    cluster: &str,
) -> Result<Client, Error> {
    use zookeeper_client::{Error as ZkError, TlsOptions};

    let refused = |error: ZkError| {
        Error::config(
            ConfigIssue::Access,
            format!("dlock.tls_* does not name PEM files that fit ({error})"),
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
    connector.with_tls(options).secure_connect(cluster).await.map_err(crate::error::explain)
}

/// The driver asks the process for its cryptography; an application's choice stays.
#[cfg(feature = "tls")]
fn provide_cryptography() {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // Another thread may have been faster.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    }
}

#[cfg(feature = "tls")]
fn read(file: &Path) -> Result<String, Error> {
    std::fs::read_to_string(file).map_err(|error| {
        let file = file.display();
        Error::config(
            ConfigIssue::Access,
            format!("{file} can't be read ({error}): see dlock.tls_*"),
        )
    })
}

/// The configuration has refused it before.
#[cfg(not(feature = "tls"))]
#[expect(clippy::unused_async, reason = "the same shape as with TLS")]
pub(crate) async fn connect(_: Connector, _: &Tls, _: &str) -> Result<Client, Error> {
    Err(Error::config(ConfigIssue::MissingFeature, "zks: needs the Cargo feature \"tls\""))
}
