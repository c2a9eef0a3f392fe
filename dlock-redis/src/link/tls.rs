//! The certificates for TLS: those of the authorities, and perhaps the client's own.

use redis::{Client, ConnectionInfo, RedisResult};

use crate::config::RedisConfig;

/// Returns a client whose connections are encrypted if TLS is configured.
#[cfg(feature = "tls")]
pub(super) fn client(info: ConnectionInfo, config: &RedisConfig) -> RedisResult<Client> {
    match &config.tls {
        // A client of the application has its own TLS settings.
        Some(_) if config.given.is_some() => {
            provide_cryptography();
            Client::open(info)
        }
        Some(tls) => Client::build_with_tls(info, certificates(tls)?),
        None => Client::open(info),
    }
}

#[cfg(feature = "tls")]
fn certificates(tls: &dlock_core::TlsFiles) -> RedisResult<redis::TlsCertificates> {
    let read = |path: &std::path::Path| std::fs::read(path);
    provide_cryptography();
    let client_tls = match &tls.certificate {
        Some((certificate, key)) => {
            Some(redis::ClientTlsConfig { client_cert: read(certificate)?, client_key: read(key)? })
        }
        None => None,
    };
    let root_cert = tls.authorities.as_deref().map(read).transpose()?;
    Ok(redis::TlsCertificates { client_tls, root_cert })
}

/// Installs the cryptography provider of the process for the TLS library. A choice of the
/// application stays.
#[cfg(feature = "tls")]
fn provide_cryptography() {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // Another thread may have been faster.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
}

// Without the feature, the configuration refuses TLS, and an application's client has its own.

#[cfg(not(feature = "tls"))]
pub(super) fn client(info: ConnectionInfo, _: &RedisConfig) -> RedisResult<Client> {
    Client::open(info)
}
