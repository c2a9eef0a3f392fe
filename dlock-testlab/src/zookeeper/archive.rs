//! Java's archive of the classes of a server, with which a server starts in two thirds of the
//! processor time.
//!
//! It is in cargo's target directory, next to what else is built once: a server that is stopped in
//! order writes it, and each process that starts servers later finds it there. It is never needed:
//! without a target directory, or with a Java that can't write it, servers start without. Java does
//! not use an archive of other jars than it has.

use std::{
    collections::hash_map::DefaultHasher,
    env,
    fs::{copy, create_dir_all, metadata},
    hash::{Hash, Hasher},
    path::{Path, PathBuf},
};

use tempfile::NamedTempFile;
use tokio::sync::OnceCell;

use super::{Options, ZooKeeperServer, programs::Programs};
use crate::{Stop, Verdict};

/// The file by which cargo marks its target directory.
const MARK: &str = "CACHEDIR.TAG";

/// Where the server writes the archive, in its directory.
const WRITTEN: &str = "classes.jsa";

/// The archive of this process.
static ARCHIVE: OnceCell<Option<PathBuf>> = OnceCell::const_new();

impl Programs {
    /// The same with the archive, which is made if there is none yet.
    pub(super) async fn archived(self) -> Self {
        let archive = ARCHIVE.get_or_init(|| found_or_made(&self)).await;
        let flag = |path: &PathBuf| format!("-XX:SharedArchiveFile={}", path.display());
        Self { archive: archive.as_ref().map(flag), ..self }
    }
}

async fn found_or_made(programs: &Programs) -> Option<PathBuf> {
    let path = path(programs)?;
    match path.is_file() {
        true => Some(path),
        false => make(programs, &path).await.ok().map(|()| path),
    }
}

/// Where it is: its name is another one for another Java and for other jars.
fn path(programs: &Programs) -> Option<PathBuf> {
    let binary = env::current_exe().ok()?;
    let target = binary.ancestors().find(|directory| directory.join(MARK).is_file())?;
    let java = programs.java.canonicalize().ok()?;
    let mut hasher = DefaultHasher::new();
    for part in programs.class_path.split(':').map(Path::new).chain([java.as_path()]) {
        part.hash(&mut hasher);
        let file = metadata(part.canonicalize().as_deref().unwrap_or(part)).ok();
        file.map(|file| (file.len(), file.modified().ok())).hash(&mut hasher);
    }
    Some(target.join("dlock-testlab").join(format!("zookeeper-{:016x}.jsa", hasher.finish())))
}

/// Has a server write it. Of several processes that do so at once, the last one wins.
async fn make(programs: &Programs, path: &Path) -> Verdict {
    let directory = path.parent().ok_or_else(|| Stop::failed("no directory"))?;
    create_dir_all(directory)?;
    let archive = Some(format!("-XX:ArchiveClassesAtExit={WRITTEN}"));
    let programs = Programs { archive, ..programs.clone() };
    let server = ZooKeeperServer::start_with(&programs, &Options::new()).await?;
    // Only classes that were used are in it.
    server.create("/a", "").await?;
    server.delete_recursively("/a").await?;
    server.stop().await?;
    let whole = NamedTempFile::new_in(directory)?;
    copy(server.directory().join(WRITTEN), whole.path())?;
    whole.persist(path).map_err(|error| error.error)?;
    Ok(())
}
