//! The directory of a server, with its data and certificates, owned by the account that the server
//! runs as.

use std::{
    fs::{Permissions, set_permissions, write},
    os::unix::fs::{PermissionsExt, chown},
    path::{Path, PathBuf},
    sync::Arc,
};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use tempfile::TempDir;
use tokio::sync::OnceCell;

use super::{machine::Account, watchdog::Watchdog};
use crate::{Stop, Verdict};

/// A temporary directory that belongs to the account that its server runs as.
#[derive(Debug)]
pub(super) struct Directory {
    path: TempDir,
    // Declared after the directory, so that the watchdog removes the directory if this process ends
    // while it is being removed.
    pub(super) watchdog: Arc<Watchdog>,
    pub(super) account: Option<Account>,
    pub(super) remains: &'static str,
}

impl Directory {
    /// Creates the directory of a server with these [remains](super::process::Launch::remains).
    pub(super) fn new(
        prefix: &str,
        account: Option<Account>,
        remains: &'static str,
    ) -> Result<Self, Stop> {
        let path = tempfile::Builder::new().prefix(prefix).tempdir()?;
        let watchdog = Arc::new(Watchdog::over(path.path(), remains)?);
        let directory = Self { path, watchdog, account, remains };
        directory.give("")?;
        Ok(directory)
    }

    /// Creates another directory for the same account, for programs that leave nothing outside of
    /// it.
    pub(super) fn beside(&self, prefix: &str) -> Result<Self, Stop> {
        Self::new(prefix, self.account, "")
    }

    pub(super) fn path(&self) -> &Path {
        self.path.path()
    }

    /// Writes a file.
    pub(super) fn write(&self, name: &str, text: &str) -> Verdict {
        write(self.path().join(name), text)?;
        self.give(name)
    }

    /// Writes certificates for a server that uses TLS.
    pub(super) fn certify(&self) -> Verdict {
        generate(self.path())?;
        for name in [CA, SERVER.0, SERVER.1] {
            self.give(name)?;
        }
        Ok(())
    }

    /// Returns the certificate of the authority, if there are certificates.
    pub(super) fn ca(&self) -> Option<PathBuf> {
        Some(self.path().join(CA)).filter(|ca| ca.is_file())
    }

    /// Returns a client's certificate and its key, if there are certificates.
    pub(super) fn client_certificate(&self) -> Option<(PathBuf, PathBuf)> {
        self.ca().map(|ca| (ca.with_file_name(CLIENT.0), ca.with_file_name(CLIENT.1)))
    }

    fn give(&self, name: &str) -> Verdict {
        if let Some(account) = self.account {
            chown(self.path().join(name), Some(account.user), Some(account.group))?;
        }
        Ok(())
    }
}

/// The name of a template and of its copies in the directories of servers.
pub(super) const DATA: &str = "data";

/// The data directory that all servers of a kind start with, created once per process. It is never
/// dropped: the watchdog of its directory removes it when the process ends.
#[derive(Debug)]
pub(super) struct Template(OnceCell<Directory>);

impl Template {
    pub(super) const fn new() -> Self {
        Self(OnceCell::const_new())
    }

    /// Copies the template into this directory. If there is no template yet, `make` creates it as
    /// `DATA` in a separate directory.
    pub(super) async fn copy<F>(&self, directory: &Directory, make: impl FnOnce() -> F) -> Verdict
    where
        F: Future<Output = Result<Directory, Stop>>,
    {
        let template = self.0.get_or_try_init(make).await?;
        let data = template.path().join(DATA).display().to_string();
        directory.run(r#"cp -Rp -- "$1" ."#, &[&data]).await
    }
}

/// A server's data at one moment, as in a backup. The copy is removed when this value is dropped.
///
/// It can be restored only to the server that it was made from.
#[derive(Debug)]
pub struct Snapshot {
    directory: Directory,
    of: Box<Path>,
}

impl Snapshot {
    /// Runs shell commands in a new directory that copy data from the directory `$1` into `data`.
    pub(super) async fn make(
        directory: Directory,
        of: &Path,
        commands: &str,
    ) -> Result<Self, Stop> {
        directory.run(commands, &[&of.display().to_string()]).await?;
        Ok(Self { directory, of: of.into() })
    }

    /// Runs shell commands that copy the data back from `data` into the directory `$1`, as the
    /// account that made the copy.
    pub(super) async fn restore(&self, to: &Path, commands: &str) -> Verdict {
        if *self.of != *to {
            return Err(Stop::failed("the snapshot is that of another server"));
        }
        self.directory.run(commands, &[&to.display().to_string()]).await
    }
}

/// Copies the data directory of a paused server. It leaves out the file that marks a running
/// server, and sockets.
pub(super) const TAKE: &str = r#"
cp -Rp -- "$1/data" . && rm -f data/postmaster.pid data/socket data/pid
"#;

/// Restores the data.
pub(super) const PUT: &str = r#"rm -rf -- "$1/data" && cp -Rp -- data "$1""#;

/// The authority's certificate, in the directory.
pub(super) const CA: &str = "ca.crt";

/// The server's certificate and its key, in the directory.
pub(super) const SERVER: (&str, &str) = ("server.crt", "server.key");

const CLIENT: (&str, &str) = ("client.crt", "client.key");

/// Creates a certificate authority, and certificates for a server on this machine and for a client.
/// The authority's key is not kept.
fn generate(directory: &Path) -> Verdict {
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
