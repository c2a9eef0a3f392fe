//! Finds Java and its jars.

use std::{
    path::{Path, PathBuf, absolute},
    process::Command,
    sync::OnceLock,
};

use crate::{Stop, Verdict, machine::find};

const CLASS_PATH: &str = "DLOCK_TEST_ZOOKEEPER_CLASSPATH";

/// Debian's directory of jars.
const DEBIAN: &str = "/usr/share/java";

/// The jars that a server needs. The manifest of the first one names most of the others. The jars
/// of Netty that it does not name are for TLS.
const SERVER: [&str; 5] = [
    "zookeeper",
    "slf4j-simple",
    "netty-codec",
    "netty-resolver",
    "netty-transport-native-unix-common",
];

/// A class of ZooKeeper that prints its version and ends.
const VERSION: &str = "org.apache.zookeeper.Version";

/// Whether Java uses the class path that the user gave, which is the same for the whole process.
static USED: OnceLock<Verdict> = OnceLock::new();

/// The jars that Curator's recipes need besides those of the server.
const CURATOR: [&str; 4] = ["curator-recipes", "curator-framework", "curator-client", "guava"];

/// Java, with the class path of a server.
#[derive(Clone, Debug)]
pub(super) struct Programs {
    pub(super) java: PathBuf,
    pub(super) class_path: String,
}

/// Java's compiler, with the class path of a program that uses Curator.
#[derive(Clone, Debug)]
pub(super) struct Compiler {
    pub(super) javac: PathBuf,
    pub(super) class_path: String,
}

impl Programs {
    pub(super) fn find() -> Result<Self, Stop> {
        let missing = "java is not installed: apt-get install default-jre-headless";
        let java = find("java").ok_or_else(|| Stop::missing(missing))?;
        let class_path = match std::env::var(CLASS_PATH) {
            Ok(path) => {
                let path = given(path)?;
                USED.get_or_init(|| check_used(&java, &path)).clone()?;
                path
            }
            Err(_) => debian(&SERVER, "ZooKeeper", "zookeeper libslf4j-java")?,
        };
        Ok(Self { java, class_path })
    }

    /// Returns a compiler for programs that use Curator.
    pub(super) fn compiler(&self) -> Result<Compiler, Stop> {
        // The path of Java may be a link from another directory. A Java runtime without a compiler
        // has no `javac`.
        let beside = self.java.canonicalize().ok().map(|java| java.with_file_name("javac"));
        let beside = beside.filter(|javac| javac.is_file());
        let missing = "java has no compiler: apt-get install default-jdk-headless";
        let javac = beside.or_else(|| find("javac")).ok_or_else(|| Stop::missing(missing))?;
        let curator = debian(&CURATOR, "Curator", "libcurator-recipes-java")?;
        // The jars of the server are first, as in its archive.
        Ok(Compiler { javac, class_path: format!("{}:{curator}", self.class_path) })
    }
}

/// Returns the class path that the user gave, if all of it exists.
fn given(path: String) -> Result<String, Stop> {
    let is_there = |part: &str| Path::new(part.trim_end_matches("/*")).exists();
    match path.split(':').all(is_there) {
        true => Ok(path),
        false => Err(Stop::missing(format!("{CLASS_PATH} is {path}, which does not exist"))),
    }
}

/// Checks that Java loads ZooKeeper from the given class path. A jar may name others by their full
/// path, as those of Debian do. Then another ZooKeeper, that of the system, would run.
fn check_used(java: &Path, class_path: &str) -> Verdict {
    let output = Command::new(java)
        .args(["-Xlog:class+load=info:stdout", "-cp", class_path, VERSION])
        .output()?;
    let output = String::from_utf8_lossy(&output.stdout);
    let sign = format!("{VERSION} source: file:");
    let source = output.lines().find_map(|line| Some(line.split_once(&sign)?.1.trim()));
    let Some(source) = source else {
        return Err(Stop::missing(format!("{CLASS_PATH} is {class_path}, without ZooKeeper")));
    };
    let is_in = |part: &str| match part.strip_suffix("/*") {
        Some(directory) => {
            absolute(directory).is_ok_and(|at| Path::new(source).parent() == Some(&at))
        }
        None => absolute(part).is_ok_and(|at| Path::new(source) == at),
    };
    match class_path.split(':').any(is_in) {
        true => Ok(()),
        false => Err(Stop::failed(format!(
            "{CLASS_PATH} is {class_path}, but Java takes ZooKeeper from {source}: remove the \
             Class-Path from the manifests of the jars"
        ))),
    }
}

fn debian(names: &[&str], what: &str, packages: &str) -> Result<String, Stop> {
    let jars: Vec<String> = names.iter().map(|name| format!("{DEBIAN}/{name}.jar")).collect();
    match jars.iter().find(|jar| !Path::new(jar).is_file()) {
        Some(jar) => {
            let remedy = format!("apt-get install {packages}");
            Err(Stop::missing(format!("{what} is not installed, {jar} is missing: {remedy}")))
        }
        None => Ok(jars.join(":")),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{copy, create_dir, write};

    use super::*;
    use crate::judge;

    #[test]
    fn a_jar_that_leads_to_another_zookeeper_is_detected() {
        judge("zk", misled());
    }

    fn misled() -> Verdict {
        let programs = Programs::find()?;
        let Programs { java, class_path } = &programs;
        let jars: Vec<_> = class_path.split(':').filter(|part| part.ends_with(".jar")).collect();
        let own = jars.iter().find(|jar| jar.ends_with("/zookeeper.jar"));
        let own = own.ok_or_else(|| Stop::missing("ZooKeeper is not in a jar of this name"))?;
        check_used(java, class_path)?;

        let directory = tempfile::tempdir()?;
        let libraries = directory.path().join("lib");
        create_dir(&libraries)?;
        copy(own, libraries.join("zookeeper.jar"))?;
        let all = format!("{}/*", libraries.display());
        check_used(java, &all)?;

        // Java reads the jars of a directory in any order, so this jar is placed before it.
        let manifest = directory.path().join("manifest");
        write(&manifest, format!("Class-Path: file://{own}\n"))?;
        let decoy = directory.path().join("decoy.jar");
        let jar = programs.compiler()?.javac.with_file_name("jar");
        let made = Command::new(jar).arg("cfm").args([&decoy, &manifest]).status()?;
        assert!(made.success(), "{made}");
        let error = check_used(java, &format!("{}:{all}", decoy.display())).unwrap_err();
        assert!(format!("{error:?}").contains(&format!("takes ZooKeeper from {own}")), "{error:?}");
        let error = check_used(java, &decoy.display().to_string().replace("decoy", "none"));
        assert!(format!("{error:?}").contains("without ZooKeeper"), "{error:?}");
        Ok(())
    }
}
