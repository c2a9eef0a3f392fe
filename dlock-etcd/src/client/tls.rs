//! TLS by rustls, with the files that the URL or the builder names.

#[cfg(feature = "tls")]
pub(crate) use with_tls::{Secure, check_host};
#[cfg(not(feature = "tls"))]
pub(crate) use without_tls::Secure;

#[cfg(feature = "tls")]
mod with_tls {
    use std::{fmt::Display, path::Path, sync::Arc};

    use dlock_core::{Certainty::NotApplied, TlsFiles};
    use rustls::{
        ClientConfig, RootCertStore,
        pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
    };
    use tokio::net::TcpStream;
    use tokio_rustls::{TlsConnector, client::TlsStream};

    use crate::client::failure::{Failure, FailureKind::TlsFiles as NoFiles};

    /// Loaded files.
    pub(crate) struct Secure(TlsConnector);

    impl Secure {
        /// Reads the files. They are read for each connection, so that renewed ones are used.
        pub(crate) fn load(files: &TlsFiles) -> Result<Self, Failure> {
            let mut roots = RootCertStore::empty();
            // The configuration was checked, so they are there.
            if let Some(file) = &files.authorities {
                for certificate in certificates(file)? {
                    roots.add(certificate).map_err(|error| refused(file, error))?;
                }
            }
            let provider = Arc::new(rustls::crypto::ring::default_provider());
            let builder = ClientConfig::builder_with_provider(provider)
                .with_safe_default_protocol_versions()
                .map_err(|error| Failure::new(NoFiles, NotApplied, error.to_string()))?
                .with_root_certificates(roots);
            let mut config = match &files.certificate {
                None => builder.with_no_client_auth(),
                Some((certificate, key)) => {
                    let chain = certificates(certificate)?;
                    let key_of_it =
                        PrivateKeyDer::from_pem_file(key).map_err(|error| refused(key, error))?;
                    builder
                        .with_client_auth_cert(chain, key_of_it)
                        .map_err(|error| refused(certificate, error))?
                }
            };
            config.alpn_protocols = vec![b"h2".to_vec()];
            Ok(Self(TlsConnector::from(Arc::new(config))))
        }

        /// Encrypts a connection to `host:port`. An error is text for people.
        pub(crate) async fn handshake(
            self,
            endpoint: &str,
            stream: TcpStream,
        ) -> Result<TlsStream<TcpStream>, String> {
            let name = server_name(endpoint)?;
            self.0.connect(name, stream).await.map_err(|error| error.to_string())
        }
    }

    /// Refuses a host for which no certificate is possible, such as `127.1`.
    pub(crate) fn check_host(endpoint: &str) -> Result<(), String> {
        server_name(endpoint).map(drop)
    }

    /// Returns the name that the certificate of `host:port` has to be for.
    pub(super) fn server_name(endpoint: &str) -> Result<ServerName<'static>, String> {
        let host = endpoint.rsplit_once(':').map_or(endpoint, |(host, _)| host);
        let host = host.trim_start_matches('[').trim_end_matches(']');
        ServerName::try_from(host.to_owned())
            .map_err(|_| format!("{host:.80} is neither a host name nor a complete address"))
    }

    fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, Failure> {
        let read = CertificateDer::pem_file_iter(file).and_then(Iterator::collect);
        match read {
            Ok(certificates) if Vec::is_empty(&certificates) => {
                Err(refused(file, "it has no certificate"))
            }
            read => read.map_err(|error| refused(file, error)),
        }
    }

    fn refused(file: &Path, error: impl Display) -> Failure {
        Failure::new(NoFiles, NotApplied, format!("{}: {error}", file.display()))
    }
}

#[cfg(not(feature = "tls"))]
mod without_tls {
    use dlock_core::{Certainty::NotApplied, TlsFiles};
    use tokio::net::TcpStream;

    use crate::client::failure::{Failure, FailureKind::TlsFiles as NoFiles};

    /// Never there: the configuration refuses TLS without the feature.
    pub(crate) enum Secure {}

    impl Secure {
        pub(crate) fn load(_: &TlsFiles) -> Result<Self, Failure> {
            Err(Failure::new(NoFiles, NotApplied, "dlock was built without the feature \"tls\""))
        }

        #[expect(clippy::unused_async, reason = "the same shape as with TLS")]
        pub(crate) async fn handshake(self, _: &str, _: TcpStream) -> Result<TcpStream, String> {
            match self {}
        }
    }
}

#[cfg(all(test, feature = "tls"))]
mod tests {
    use crate::client::tls::with_tls::server_name;

    #[test]
    fn the_certificate_is_for_the_host_of_the_endpoint() {
        for (endpoint, name) in [
            ("e1.example:2379", "e1.example"),
            ("127.0.0.1:2379", "127.0.0.1"),
            ("[::1]:2379", "::1"),
        ] {
            assert_eq!(server_name(endpoint).unwrap().to_str(), name);
        }
        assert!(server_name("127.1:2379").is_err());
    }
}
