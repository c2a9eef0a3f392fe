//! Where Java and its jars are.

use std::path::{Path, PathBuf};

use crate::{Stop, program::find};

const CLASS_PATH: &str = "DLOCK_TEST_ZOOKEEPER_CLASSPATH";

/// Where Debian puts jars.
const DEBIAN: &str = "/usr/share/java";

/// What a server needs; the manifest of the first names most of the others. The jars of Netty that
/// it does not name are for TLS.
const SERVER: [&str; 5] = [
    "zookeeper",
    "slf4j-simple",
    "netty-codec",
    "netty-resolver",
    "netty-transport-native-unix-common",
];

/// What Curator's recipes need beside them.
const CURATOR: [&str; 4] = ["curator-recipes", "curator-framework", "curator-client", "guava"];

/// Java, with the class path of a server.
#[derive(Clone, Debug)]
pub(super) struct Programs {
    pub(super) java: PathBuf,
    pub(super) class_path: String,
    /// Has Java use an [archive](super::archive) of classes, or write one.
    pub(super) archive: Option<String>,
}

/// Java's compiler, with the class path of a program that uses Curator.
#[derive(Clone, Debug)]
pub(super) struct Compiler {
    pub(super) javac: PathBuf,
    pub(super) class_path: String,
}

impl Programs {
    pub(super) fn find() -> Result<Self, Stop> {
        let class_path = match std::env::var(CLASS_PATH) {
            Ok(path) => given(path)?,
            Err(_) => debian(&SERVER, "ZooKeeper", "zookeeper libslf4j-java")?,
        };
        let missing = "java is not installed: apt-get install default-jre-headless";
        let java = find("java").ok_or_else(|| Stop::missing(missing))?;
        Ok(Self { java, class_path, archive: None })
    }

    /// A compiler for programs that use Curator.
    pub(super) fn compiler(&self) -> Result<Compiler, Stop> {
        // Java may stand elsewhere under a link; a runtime without a compiler has no `javac`.
        let beside = self.java.canonicalize().ok().map(|java| java.with_file_name("javac"));
        let beside = beside.filter(|javac| javac.is_file());
        let missing = "java has no compiler: apt-get install default-jdk-headless";
        let javac = beside.or_else(|| find("javac")).ok_or_else(|| Stop::missing(missing))?;
        let curator = debian(&CURATOR, "Curator", "libcurator-recipes-java")?;
        // The server's stand first, as in its archive.
        Ok(Compiler { javac, class_path: format!("{}:{curator}", self.class_path) })
    }
}

/// What somebody gave, if all of it is there.
fn given(path: String) -> Result<String, Stop> {
    let is_there = |part: &str| Path::new(part.trim_end_matches("/*")).exists();
    match path.split(':').all(is_there) {
        true => Ok(path),
        false => Err(Stop::missing(format!("{CLASS_PATH} is {path}, which does not exist"))),
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
