//! A copy of what a server has kept, to which it can be set back.

use std::path::Path;

use super::{home::Home, template::DATA};
use crate::{Stop, Verdict};

/// What a server had kept at some time, as in a backup. It goes when it is dropped.
///
/// It belongs to the server that it was made by.
#[derive(Debug)]
pub struct Snapshot {
    home: Home,
    of: Box<Path>,
}

impl Snapshot {
    /// Has shell commands copy from this directory, which is `$1`, what is to be kept into `data`.
    /// The home is a new one.
    pub(super) async fn make(home: Home, of: &Path, commands: &str) -> Result<Self, Stop> {
        home.run(commands, &[&of.display().to_string()]).await?;
        Ok(Self { home, of: of.into() })
    }

    /// Has shell commands copy it back from `data` into the directory `$1`, as whom it was made by.
    pub(super) async fn restore(&self, to: &Path, commands: &str) -> Verdict {
        if *self.of != *to {
            return Err(Stop::failed("the snapshot is that of another server"));
        }
        self.home.run(commands, &[&to.display().to_string()]).await
    }
}

/// Copies the data directory of a server that stands still. What says that it runs stays there, and
/// a socket is no file.
pub(super) const TAKE: &str = r#"
cp -Rp -- "$1/data" . && rm -f data/postmaster.pid data/socket data/pid
"#;

/// Puts it back.
pub(super) const PUT: &str = r#"rm -rf -- "$1/data" && cp -Rp -- data "$1""#;

/// Removes the data of a server that does not run.
pub(super) async fn clear(home: &Home) -> Verdict {
    home.run(r#"rm -rf -- "$1""#, &[DATA]).await
}
