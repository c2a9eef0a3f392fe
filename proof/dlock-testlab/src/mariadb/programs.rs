//! Finds the programs of MariaDB.

use std::path::{Path, PathBuf};

use crate::{Stop, program::find};

const BIN: &str = "DLOCK_TEST_MARIADB_BIN";

/// The programs that set up and run servers.
#[derive(Clone, Debug)]
pub(super) struct Programs {
    pub(super) server: PathBuf,
    pub(super) install: PathBuf,
}

impl Programs {
    pub(super) fn find() -> Result<Self, Stop> {
        Ok(Self {
            server: program("mariadbd", "mariadb-server")?,
            install: program("mariadb-install-db", "mariadb-server")?,
        })
    }
}

fn program(name: &str, package: &str) -> Result<PathBuf, Stop> {
    match std::env::var(BIN) {
        Ok(bin) => {
            let path = Some(Path::new(&bin).join(name)).filter(|path| path.is_file());
            path.ok_or_else(|| Stop::missing(format!("{BIN} is {bin}, where no {name} is")))
        }
        Err(_) => find(name).ok_or_else(|| {
            Stop::missing(format!("{name} is not installed: apt-get install {package}"))
        }),
    }
}
