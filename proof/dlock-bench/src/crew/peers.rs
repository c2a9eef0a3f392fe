//! The locks of other projects, and whether they can run here.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use serde::Serialize;

use crate::{
    Failure,
    own::{Flavour, Own},
    store::Store,
};

/// The package with the locks in Rust. It is not a member of the workspace, because it uses other
/// versions of the drivers.
const PACKAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/peers");
const PROGRAM: &str = "dlock-bench-peers";
const LOCK_FILE: &str = include_str!("../../peers/Cargo.lock");

/// The lock of the SQL driver.
const ADVISORY: &str = "PgAdvisoryLock";

/// The directory of Debian's jars.
const JARS: &str = "/usr/share/java";

/// A lock of another project.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer {
    pub(crate) name: &'static str,
    pub(crate) store: Store,
    /// Whether it is granted in the order of requests.
    pub(crate) fair: bool,
    how: How,
}

/// A contestant that is missing, with the reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct LeftOut {
    pub(crate) name: String,
    pub(crate) reason: String,
}

/// The version of a peer that takes part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Version {
    pub(crate) name: String,
    pub(crate) version: String,
}

/// The environment in which it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    /// The package of peers.
    Rust,
    /// Java, with the jars that the system has installed.
    Java,
    /// A script, if the module is installed.
    Python { module: &'static str, script: &'static str },
    /// The server itself, with a client in this executable.
    Server,
}

/// All known peers.
pub(crate) const PEERS: &[Peer] = &[
    rust("rslock", Store::Redis, false),
    rust("redlock", Store::Redis, false),
    rust("distributed-lock-redis", Store::Redis, false),
    Peer {
        name: "redis-py",
        store: Store::Redis,
        fair: false,
        how: How::Python { module: "redis", script: "redis_py.py" },
    },
    rust("distributed-lock-postgres", Store::Postgres, true),
    rust(ADVISORY, Store::Postgres, true),
    rust("distributed-lock-mysql", Store::Mysql, true),
    rust("zookeeper-client", Store::Zk, true),
    Peer { name: "Curator", store: Store::Zk, fair: true, how: How::Java },
    Peer {
        name: "kazoo",
        store: Store::Zk,
        fair: true,
        how: How::Python { module: "kazoo", script: "kazoo_lock.py" },
    },
    Peer { name: Own::LockService.name(), store: Store::Etcd, fair: true, how: How::Server },
];

const fn rust(name: &'static str, store: Store, fair: bool) -> Peer {
    Peer { name, store, fair, how: How::Rust }
}

impl Peer {
    /// Whether it is a Java program.
    pub(crate) fn is_java(self) -> bool {
        self.how == How::Java
    }

    /// Whether each of its tasks is a thread.
    pub(crate) fn has_threads(self) -> bool {
        matches!(self.how, How::Java | How::Python { .. })
    }

    /// Returns its version; `None` if it is the server's, or unknown.
    pub(crate) fn version(self) -> Option<Version> {
        let version = match self.how {
            How::Rust => locked(LOCK_FILE, if self.name == ADVISORY { "sqlx" } else { self.name }),
            How::Java => {
                let jars = fs::read_dir(JARS).into_iter().flatten().flatten();
                let names = jars.filter_map(|jar| jar.file_name().into_string().ok());
                names.filter_map(|name| curator(&name)).max()
            }
            How::Python { module, .. } => {
                let script =
                    format!("import importlib.metadata as m; print(m.version('{module}'))");
                runs("python3", &["-c", &script]).ok()
            }
            How::Server => None,
        };
        Some(Version { name: self.name.to_owned(), version: version? })
    }

    /// Returns the command that starts a process of it.
    pub(crate) fn command(self, url: &str, flavour: Flavour) -> Result<Command, Failure> {
        match self.how {
            How::Rust => {
                let mut command = Command::new(target()?.join("release").join(PROGRAM));
                command.args([self.name, url, flavour.label()]);
                Ok(command)
            }
            How::Python { script, .. } => {
                let mut command = Command::new("python3");
                command.arg(Path::new(PACKAGE).join("scripts").join(script)).arg(url);
                Ok(command)
            }
            How::Server => Own::LockService.command(url, flavour),
            How::Java => Err("there is no such process".into()),
        }
    }
}

/// Returns the version of a package in a lock file; the largest if there are several.
fn locked(lock_file: &str, package: &str) -> Option<String> {
    let name = format!("name = \"{package}\"\nversion = \"");
    let versions = lock_file.split("[[package]]\n").filter_map(|text| text.strip_prefix(&name));
    versions.filter_map(|rest| rest.split('"').next()).max().map(ToOwned::to_owned)
}

/// Returns the version in the name of Curator's jar.
fn curator(jar: &str) -> Option<String> {
    let version = jar.strip_prefix("curator-recipes-")?.strip_suffix(".jar")?;
    Some(version.to_owned())
}

/// Builds the peers. Returns those that can run, and the reasons why the others can't.
pub(crate) fn ready(asked: &[Peer], stores: &[Store]) -> (Vec<Peer>, Vec<LeftOut>) {
    let (mut ready, mut missing) = (Vec::new(), Vec::new());
    let asked: Vec<&Peer> = asked.iter().filter(|peer| stores.contains(&peer.store)).collect();
    let built = if asked.iter().any(|peer| peer.how == How::Rust) { build() } else { Ok(()) };
    for peer in asked {
        let found = match peer.how {
            How::Rust => built.as_ref().map_err(ToString::to_string).copied(),
            // The program itself reports at its start if something is missing.
            How::Java | How::Server => Ok(()),
            How::Python { module, .. } => {
                let found = runs("python3", &["-c", &format!("import {module}")]);
                found.map(drop).map_err(|error| error.to_string())
            }
        };
        match found {
            Ok(()) => ready.push(*peer),
            Err(reason) => missing.push(LeftOut { name: peer.name.to_owned(), reason }),
        }
    }
    (ready, missing)
}

/// Builds the package of peers, which takes minutes the first time.
fn build() -> Result<(), Failure> {
    eprintln!("dlock-bench: building {PROGRAM}, which takes a while for the first time");
    let manifest = Path::new(PACKAGE).join("Cargo.toml");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let built = Command::new(cargo)
        .args(["build", "--release", "--locked", "--quiet", "--manifest-path"])
        .arg(manifest)
        .arg("--target-dir")
        .arg(target()?)
        .stdin(Stdio::null())
        .output()?;
    match built.status.success() {
        true => Ok(()),
        false => {
            let said = String::from_utf8_lossy(&built.stderr);
            let error = said.lines().find(|line| line.starts_with("error"));
            Err(format!("it does not build: {}", error.unwrap_or("cargo failed")).into())
        }
    }
}

/// Returns a separate target directory within that of this executable: the two packages share
/// hardly any crate.
fn target() -> Result<PathBuf, Failure> {
    let executable = std::env::current_exe()?;
    // The executables of tests are one directory deeper.
    let profile = executable
        .ancestors()
        .find(|path| path.file_name().is_some_and(|name| name == "release" || name == "debug"));
    let target =
        profile.and_then(Path::parent).ok_or("this executable is in no target directory")?;
    Ok(target.join("peers"))
}

/// Runs a program, and returns its output. The error is the reason why it does not run.
fn runs(program: &str, args: &[&str]) -> Result<String, Failure> {
    let done = Command::new(program).args(args).stdin(Stdio::null()).output();
    let done = done.map_err(|error| format!("no {program}: {error}"))?;
    match done.status.success() {
        true => Ok(String::from_utf8_lossy(&done.stdout).trim().to_owned()),
        false => {
            let said = String::from_utf8_lossy(&done.stderr);
            let error = said.lines().map(str::trim).find(|line| line.contains("Error"));
            Err(format!("{program}: {}", error.unwrap_or("it fails")).into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_whose_program_fails_is_missing_with_the_reason() {
        assert!(runs("/no/such/program", &[]).is_err());
        let fails = runs("sh", &["-c", "echo 'SomeError: no such module' >&2; exit 1"]);
        assert!(fails.unwrap_err().to_string().contains("no such module"));
        assert_eq!(runs("echo", &["8.1.0"]).unwrap(), "8.1.0");
    }

    #[test]
    fn a_version_is_that_of_the_package() {
        let packages = "[[package]]\nname = \"a-b\"\nversion = \"9.0.0\"\n\n\
            [[package]]\nname = \"a\"\nversion = \"1.2.3\"\nsource = \"x\"\n";
        assert_eq!(locked(packages, "a").unwrap(), "1.2.3");
        assert_eq!(locked(packages, "b"), None);
        assert_eq!(curator("curator-recipes-5.4.0.jar").unwrap(), "5.4.0");
        assert_eq!(curator("curator-recipes.jar"), None);
        let rust = PEERS.iter().filter(|peer| peer.how == How::Rust);
        assert!(rust.copied().all(|peer| peer.version().is_some()));
    }

    #[test]
    fn only_peers_of_the_stores_are_looked_for() {
        let (ready, missing) = ready(PEERS, &[Store::Memory]);
        assert!(ready.is_empty() && missing.is_empty());
    }
}
