//! Certificates for a server that uses TLS.

use std::{
    fs::{Permissions, set_permissions, write},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};

use crate::Verdict;

/// The authority's certificate, in the directory.
pub(super) const CA: &str = "ca.crt";

/// The server's certificate and its key, in the directory.
pub(super) const SERVER: (&str, &str) = ("server.crt", "server.key");

const CLIENT: (&str, &str) = ("client.crt", "client.key");

/// Creates a certificate authority, and certificates for a server on this machine and for a client.
/// The authority's key is not kept.
pub(super) fn generate(directory: &Path) -> Verdict {
    let key = KeyPair::generate()?;
    let mut ca = CertificateParams::new(Vec::new())?;
    ca.distinguished_name.push(DnType::CommonName, "dlock test authority");
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    ca.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    write(directory.join(CA), ca.self_signed(&key)?.pem())?;
    let issuer = Issuer::new(ca, key);
    for (certificate, key) in [SERVER, CLIENT] {
        let pair = KeyPair::generate()?;
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        let signed = CertificateParams::new(names)?.signed_by(&pair, &issuer)?;
        write(directory.join(certificate), signed.pem())?;
        write(directory.join(key), pair.serialize_pem())?;
        // Some servers refuse a key that other accounts could read.
        set_permissions(directory.join(key), Permissions::from_mode(0o600))?;
    }
    Ok(())
}

pub(super) fn ca(directory: &Path) -> PathBuf {
    directory.join(CA)
}

pub(super) fn client(directory: &Path) -> (PathBuf, PathBuf) {
    let (certificate, key) = CLIENT;
    (directory.join(certificate), directory.join(key))
}
