//! A copy of a server's data, from which the server can be restored.

use std::path::Path;

use super::{home::Home, template::DATA};
use crate::{Stop, Verdict};

/// A server's data at one moment, as in a backup. The copy is removed when this value is dropped.
///
/// It can be restored only to the server that it was made from.
#[derive(Debug)]
pub struct Snapshot {
    home: Home,
    of: Box<Path>,
}

impl Snapshot {
    /// Runs shell commands that copy data from this directory, which is `$1`, into `data` in a new
    /// home.
    pub(super) async fn make(home: Home, of: &Path, commands: &str) -> Result<Self, Stop> {
        home.run(commands, &[&of.display().to_string()]).await?;
        Ok(Self { home, of: of.into() })
    }

    /// Runs shell commands that copy the data back from `data` into the directory `$1`, as the
    /// account that made the copy.
    pub(super) async fn restore(&self, to: &Path, commands: &str) -> Verdict {
        if *self.of != *to {
            return Err(Stop::failed("the snapshot is that of another server"));
        }
        self.home.run(commands, &[&to.display().to_string()]).await
    }
}

/// Copies the data directory of a paused server. It leaves out the file that marks a running
/// server, and sockets.
pub(super) const TAKE: &str = r#"
cp -Rp -- "$1/data" . && rm -f data/postmaster.pid data/socket data/pid
"#;

/// Restores the data.
pub(super) const PUT: &str = r#"rm -rf -- "$1/data" && cp -Rp -- data "$1""#;

/// Removes the data of a server that does not run.
pub(super) async fn clear(home: &Home) -> Verdict {
    home.run(r#"rm -rf -- "$1""#, &[DATA]).await
}
