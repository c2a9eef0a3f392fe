//! Finds the programs of PostgreSQL.

use std::{
    fs::read_dir,
    path::{Path, PathBuf},
};

use crate::{Stop, program::find};

const BIN: &str = "DLOCK_TEST_POSTGRES_BIN";

/// Debian's parent directory of a directory for each major version.
const DEBIAN: &str = "/usr/lib/postgresql";

/// The programs that set up and run servers, and `psql`, all of one version.
#[derive(Clone, Debug)]
pub(super) struct Programs {
    bin: PathBuf,
}

impl Programs {
    pub(super) fn find() -> Result<Self, Stop> {
        let (bin, reason) = match std::env::var(BIN) {
            Ok(bin) => {
                let reason = format!("{BIN} is {bin}, where no PostgreSQL server is");
                (Some(PathBuf::from(bin)), reason)
            }
            Err(_) => {
                let reason = "PostgreSQL is not installed: apt-get install postgresql".to_owned();
                let on_path = || Some(find("initdb")?.canonicalize().ok()?.parent()?.to_owned());
                (newest(Path::new(DEBIAN)).or_else(on_path), reason)
            }
        };
        let bin = bin.filter(|bin| bin.join("initdb").is_file() && bin.join("postgres").is_file());
        Ok(Self { bin: bin.ok_or_else(|| Stop::missing(reason))? })
    }

    pub(super) fn bin(&self) -> &Path {
        &self.bin
    }

    /// Returns the path of a program. The programs of clients may be in another directory.
    pub(super) fn path(&self, name: &str) -> Result<PathBuf, Stop> {
        let beside = self.bin.join(name);
        match beside.is_file() {
            true => Ok(beside),
            false => find(name).ok_or_else(|| Stop::missing(format!("{name} is not installed"))),
        }
    }
}

/// Returns the directory of the newest version that has a server.
fn newest(versions: &Path) -> Option<PathBuf> {
    let version = |path: &PathBuf| path.file_name()?.to_str()?.parse::<u32>().ok();
    let paths = read_dir(versions).ok()?.filter_map(|entry| Some(entry.ok()?.path()));
    let servers = paths.filter(|path| path.join("bin/initdb").is_file());
    servers.max_by_key(version).map(|path| path.join("bin"))
}
