//! The directory of a server, owned by the account that the server runs as.

use std::{os::unix::fs::chown, path::Path, sync::Arc};

use tempfile::TempDir;

use super::{account::Account, tls, watchdog::Watchdog};
use crate::{Stop, Verdict};

/// A temporary directory that belongs to the account that its server runs as.
#[derive(Debug)]
pub(super) struct Home {
    directory: TempDir,
    // Declared after the directory, so that the watchdog removes the directory if this process ends
    // while it is being removed.
    pub(super) watchdog: Arc<Watchdog>,
    pub(super) account: Option<Account>,
    pub(super) remains: &'static str,
}

impl Home {
    /// Creates the directory of a server with these [remains](super::launch::Launch::remains).
    pub(super) fn new(
        prefix: &str,
        account: Option<Account>,
        remains: &'static str,
    ) -> Result<Self, Stop> {
        let directory = tempfile::Builder::new().prefix(prefix).tempdir()?;
        let watchdog = Arc::new(Watchdog::over(directory.path(), remains)?);
        let home = Self { directory, watchdog, account, remains };
        home.give("")?;
        Ok(home)
    }

    /// Creates another directory for the same account, for programs that leave nothing outside of
    /// it.
    pub(super) fn beside(&self, prefix: &str) -> Result<Self, Stop> {
        Self::new(prefix, self.account, "")
    }

    pub(super) fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Writes a file.
    pub(super) fn write(&self, name: &str, text: &str) -> Verdict {
        std::fs::write(self.path().join(name), text)?;
        self.give(name)
    }

    /// Writes certificates for a server that uses TLS.
    pub(super) fn certify(&self) -> Verdict {
        tls::generate(self.path())?;
        for name in [tls::CA, tls::SERVER.0, tls::SERVER.1] {
            self.give(name)?;
        }
        Ok(())
    }

    fn give(&self, name: &str) -> Verdict {
        if let Some(account) = self.account {
            chown(self.path().join(name), Some(account.user), Some(account.group))?;
        }
        Ok(())
    }
}
