//! Java's archive of the classes of a server. With it, a server starts in two thirds of the
//! processor time.
//!
//! It is in cargo's target directory, next to other files that are built once. A server that shuts
//! down writes it, and processes that start servers later find it there. It is optional: without a
//! target directory, or with a Java that can't write it, servers start without it. Java does not
//! use an archive of other jars than its own.

use std::{
    collections::hash_map::DefaultHasher,
    env,
    fs::{copy, create_dir_all, metadata},
    hash::{Hash, Hasher},
    path::{Path, PathBuf},
};

use tempfile::NamedTempFile;
use tokio::sync::OnceCell;

use super::{Options, ZooKeeperServer, programs::Programs, server::KIND};
use crate::{Stop, Verdict};

/// The file that marks cargo's target directory.
const MARK: &str = "CACHEDIR.TAG";

/// The file that the server writes in its directory.
const WRITTEN: &str = "classes.jsa";

/// The archive of this process.
static ARCHIVE: OnceCell<Option<PathBuf>> = OnceCell::const_new();

impl Options {
    /// Adds the archive, which is created if it does not exist yet.
    pub(super) async fn archived(&self) -> Result<Self, Stop> {
        let archive = archive(&Programs::find()?).await;
        Ok(self.clone().with_archive(archive))
    }
}

/// Returns the option that makes Java use the archive.
pub(super) async fn archive(programs: &Programs) -> Option<String> {
    let archive = ARCHIVE.get_or_init(|| found_or_made(programs)).await;
    archive.as_ref().map(|path| format!("-XX:SharedArchiveFile={}", path.display()))
}

async fn found_or_made(programs: &Programs) -> Option<PathBuf> {
    let path = path(programs)?;
    match path.is_file() {
        true => Some(path),
        false => make(&path).await.ok().map(|()| path),
    }
}

/// Returns the path of the archive. Its name depends on Java and on the jars.
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

/// Makes a server write the archive. If several processes do so at once, the last one wins.
async fn make(path: &Path) -> Verdict {
    let directory = path.parent().ok_or_else(|| Stop::failed("no directory"))?;
    create_dir_all(directory)?;
    let archive = Some(format!("-XX:ArchiveClassesAtExit={WRITTEN}"));
    let server = ZooKeeperServer::start_as(&KIND, &Options::new().with_archive(archive)).await?;
    // The archive contains only classes that were used.
    server.create("/a", "").await?;
    server.delete_recursively("/a").await?;
    server.stop().await?;
    let whole = NamedTempFile::new_in(directory)?;
    copy(server.directory().join(WRITTEN), whole.path())?;
    whole.persist(path).map_err(|error| error.error)?;
    Ok(())
}
