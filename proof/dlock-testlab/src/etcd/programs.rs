//! Finds etcd.

use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

use crate::{Stop, program::find};

const BIN: &str = "DLOCK_ETCD_BIN";

/// The programs, which are the same for the whole process.
static FOUND: OnceLock<Result<Programs, Stop>> = OnceLock::new();

/// The server and its command line client.
#[derive(Clone, Debug)]
pub(super) struct Programs {
    pub(super) etcd: PathBuf,
    pub(super) etcdctl: PathBuf,
    /// The version of the server, such as `3.4.23`.
    pub(super) version: String,
}

impl Programs {
    pub(super) fn find() -> Result<Self, Stop> {
        FOUND.get_or_init(look).clone()
    }

    /// Whether the server can do without syncing.
    pub(super) fn can_skip_fsync(&self) -> bool {
        !["3.3.", "3.4."].iter().any(|old| self.version.starts_with(old))
    }
}

fn look() -> Result<Programs, Stop> {
    let bin = std::env::var_os(BIN).map(PathBuf::from);
    let given = |name: &str| bin.as_ref().map(|bin| bin.join(name)).filter(|path| path.is_file());
    let etcd = match &bin {
        Some(bin) => given("etcd").ok_or_else(|| {
            Stop::missing(format!("{BIN} is {}, where no etcd is", bin.display()))
        })?,
        None => find("etcd")
            .ok_or_else(|| Stop::missing("etcd is not installed: apt-get install etcd-server"))?,
    };
    let etcdctl = given("etcdctl")
        .or_else(|| find("etcdctl"))
        .ok_or_else(|| Stop::missing("etcdctl is not installed: apt-get install etcd-client"))?;
    let version = version(&etcd)?;
    Ok(Programs { etcd, etcdctl, version })
}

fn version(etcd: &Path) -> Result<String, Stop> {
    let output = Command::new(etcd).arg("--version").output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let version = text.lines().find_map(|line| line.strip_prefix("etcd Version: "));
    let unknown = || Stop::failed(format!("{} tells no version: {text}", etcd.display()));
    version.map(|version| version.trim().to_owned()).ok_or_else(unknown)
}
