//! The identity of the file, its log and its shared memory, from calls that take a path.
//!
//! SQLite's locks are POSIX record locks. A process loses all its locks on a file as soon as it
//! closes *any* descriptor of it. Another program then finds no locks, and removes the log and the
//! shared memory while others still use them. So **nothing but SQLite opens the file, its `-wal` or
//! its `-shm`**: all other information comes from calls that take a path, such as `stat`. (Linux
//! does not count a handle that was opened with `O_PATH`.)
//!
//! SQLite finds the log and the shared memory by the *name* of the file. Two programs that open one
//! file by two names have a log each, and do not see each other's locks. SQLite itself follows
//! symbolic links. A second hard link, and a file that is itself a mount point, are refused here.
//! A symbolic link can be changed to lead to another file. So the path as it was given is compared,
//! too.
//!
//! SQLite continues in a file that was deleted, and a program that opens the path then uses another
//! one. The same holds for the log and the shared memory, which exist for as long as a connection is
//! open. So each answer counts only if all three are still those that were opened.

use std::{
    io,
    path::{Path, PathBuf},
};

use dlock_core::{ConfigIssue, Error};
use sqlx::{
    Row as _, Sqlite, SqliteConnection,
    query::Query,
    sqlite::{SqliteArguments, SqliteRow},
};

use super::{error::classify, json::Array, queries};
use crate::engine::{DatabaseGone, Fault};

/// Another name of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Alias {
    /// The file has this number of hard links.
    Links(u64),
    /// It is a mount point.
    Mounted,
}

impl Alias {
    /// Returns the consequence, and the remedy.
    pub(super) fn explain(self) -> (String, &'static str) {
        match self {
            Self::Links(links) => (
                format!(
                    "it has {links} names (hard links), and a program that opens it by another \
                     name does not see these locks"
                ),
                "stop all programs that use it, remove the other names (find / -xdev -samefile \
                 FILE shows them), or give the locks a new file",
            ),
            Self::Mounted => (
                "it is mounted by itself (bind mount), and a program that opens it by another \
                 path does not see these locks"
                    .to_owned(),
                "stop all programs that use it, and mount its directory instead, into every \
                 container",
            ),
        }
    }
}

/// Another name by which the file can be opened, as far as the system shows it.
pub(super) fn alias(path: &Path) -> io::Result<Option<Alias>> {
    let links = links(path)?;
    if links > 1 {
        return Ok(Some(Alias::Links(links)));
    }
    Ok(mount::is_root(path).then_some(Alias::Mounted))
}

/// Refuses a file that can be opened by two names.
pub(super) fn check_alias(path: &Path) -> Result<(), Error> {
    let found = alias(path).map_err(|error| no_access(path, error))?;
    found.map_or(Ok(()), |alias| {
        let (what, remedy) = alias.explain();
        let text = format!("{} can't be used: {what}: {remedy}", path.display());
        Err(Error::config(ConfigIssue::Access, text))
    })
}

/// The files of an open database.
#[derive(Clone, Debug)]
pub(super) struct OpenFiles {
    file: OpenFile,
    /// The same file by the path that clients give, which may have symbolic links.
    given: OpenFile,
    /// The log and the shared memory. They have no identity in another mode than WAL.
    beside: [OpenFile; 2],
}

/// One of them, with the identity that it had when it was first seen.
#[derive(Clone, Debug)]
struct OpenFile {
    path: PathBuf,
    opened: Option<Identity>,
}

impl OpenFiles {
    /// Returns the files of a database that is open at this path, and that clients find at the path
    /// `given`.
    pub(super) fn of(path: &Path, given: &Path) -> io::Result<Self> {
        let opened = Some(Identity::of(path)?);
        let beside = ["-wal", "-shm"].map(|suffix| {
            let mut path = path.as_os_str().to_owned();
            path.push(suffix);
            let opened = Identity::of(path.as_ref()).ok();
            OpenFile { path: path.into(), opened }
        });
        let [file, given] = [path, given].map(|path| OpenFile { path: path.to_owned(), opened });
        Ok(Self { file, given, beside })
    }

    /// Records that the database will be opened again, perhaps with another log.
    pub(super) fn reopened(&mut self) {
        self.beside.iter_mut().for_each(|beside| beside.opened = None);
    }

    /// Refuses files that are not those that were opened.
    pub(super) fn check(&mut self) -> Result<(), Error> {
        self.check_file()?;
        for beside in &mut self.beside {
            match beside.opened {
                Some(_) => beside.check()?,
                None => beside.opened = Identity::of(&beside.path).ok(),
            }
        }
        Ok(())
    }

    /// Refuses a file that is not the one that was opened.
    pub(super) fn check_file(&self) -> Result<(), Error> {
        self.file.check()?;
        if self.given.path == self.file.path { Ok(()) } else { self.given.check() }
    }

    /// Returns the path of a file that is not the one that was opened, as far as that can be seen.
    pub(super) fn replaced(&self) -> Option<&Path> {
        let mut all = [&self.file, &self.given].into_iter().chain(&self.beside);
        all.find(|one| one.is_replaced().unwrap_or(true)).map(|one| &*one.path)
    }

    /// Returns the path of the database.
    pub(super) fn path(&self) -> &Path {
        &self.file.path
    }
}

impl OpenFile {
    fn is_replaced(&self) -> io::Result<bool> {
        let Some(opened) = self.opened else { return Ok(false) };
        match Identity::of(&self.path) {
            Ok(found) => Ok(found != opened),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
            Err(error) => Err(error),
        }
    }

    fn check(&self) -> Result<(), Error> {
        match self.is_replaced() {
            Ok(false) => Ok(()),
            Err(error) => Err(no_access(&self.path, error)),
            Ok(true) => {
                let text = format!("{} {REPLACED}: {RESTART}", self.path.display());
                Err(Error::config(ConfigIssue::Access, text).with_source(DatabaseGone))
            }
        }
    }
}

pub(super) const REPLACED: &str = "was deleted or replaced while these locks used it, and other \
                                   clients may hold them in the new file";
pub(super) const RESTART: &str = "stop all programs that use it, then start them again";

/// Returns the error of a file that can't be accessed.
pub(super) fn no_access(path: &Path, error: io::Error) -> Error {
    Error::config(
        ConfigIssue::Access,
        format!(
            "{} can't be used ({error}): name a file in a directory that exists and can be written",
            path.display()
        ),
    )
    .with_source(error)
}

/// The identity of the file at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Identity(u64, u64);

impl Identity {
    /// Returns the identity of the file that is at the path now.
    #[cfg(unix)]
    fn of(path: &Path) -> io::Result<Self> {
        use std::os::unix::fs::MetadataExt as _;

        path.metadata().map(|found| Self(found.dev(), found.ino()))
    }

    /// Checks only whether there is a file: this system does not identify it.
    #[cfg(not(unix))]
    fn of(path: &Path) -> io::Result<Self> {
        path.metadata().map(|_| Self(0, 0))
    }
}

#[cfg(unix)]
fn links(path: &Path) -> io::Result<u64> {
    use std::os::unix::fs::MetadataExt as _;

    path.metadata().map(|found| found.nlink())
}

/// Returns 1: the standard library has no call for the number of links.
#[cfg(not(unix))]
fn links(path: &Path) -> io::Result<u64> {
    path.metadata().map(|_| 1)
}

/// Checks whether this user may write to the file.
#[cfg(target_os = "linux")]
pub(super) fn may_write(path: &Path) -> io::Result<()> {
    use rustix::fs::{Access, AtFlags, CWD, accessat};

    Ok(accessat(CWD, path, Access::WRITE_OK, AtFlags::EACCESS)?)
}

/// Checks whether any user may write to the file.
#[cfg(not(target_os = "linux"))]
pub(super) fn may_write(path: &Path) -> io::Result<()> {
    match path.metadata()?.permissions().readonly() {
        true => Err(io::ErrorKind::PermissionDenied.into()),
        false => Ok(()),
    }
}

#[cfg(target_os = "linux")]
mod mount {
    use std::{fs, path::Path};

    use rustix::fs::{AtFlags, CWD, StatxAttributes, StatxFlags, statx};

    /// Returns whether something is mounted at exactly this path, which is canonical.
    pub(super) fn is_root(path: &Path) -> bool {
        const ROOT: StatxAttributes = StatxAttributes::MOUNT_ROOT;
        match statx(CWD, path, AtFlags::empty(), StatxFlags::BASIC_STATS) {
            Ok(found) if found.stx_attributes_mask.contains(ROOT) => {
                found.stx_attributes.contains(ROOT)
            }
            // Before Linux 5.8.
            _ => fs::read_to_string("/proc/self/mounts").is_ok_and(|all| is_point(&all, path)),
        }
    }

    pub(super) fn is_point(mounts: &str, path: &Path) -> bool {
        super::mounts(mounts).any(|(point, _)| Path::new(&point) == path)
    }
}

/// Other systems mount only directories, or have no call for it.
#[cfg(not(target_os = "linux"))]
mod mount {
    pub(super) const fn is_root(_: &std::path::Path) -> bool {
        false
    }
}

/// Returns the mount points with the kinds of their file systems, from the text of
/// `/proc/self/mounts`.
pub(super) fn mounts(text: &str) -> impl Iterator<Item = (String, &str)> {
    text.lines().filter_map(|line| {
        let mut words = line.split(' ').skip(1);
        let (point, kind) = (words.next()?, words.next()?);
        // The kernel writes these characters as octal numbers.
        let point = point.replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n");
        Some((point.replace("\\134", "\\"), kind))
    })
}

/// The empty name, which no lock can have.
const NAME: &str = "";
const OP: &str = "probe";

/// Tries each statement that writes, and rolls all of them back. SQLite silently opens a file
/// read-only if it has no right to write: then `BEGIN IMMEDIATE` succeeds, and only a statement
/// fails.
pub(super) async fn probe_writes(conn: &mut SqliteConnection) -> Result<(), Fault> {
    run(conn, sqlx::query(queries::BEGIN)).await?;
    // The first statement inserts the row, and the next ones update it.
    run(conn, apply_one()).await?;
    let many =
        Array::new().array(|one| one.text(NAME).number(0).number(0).text("").text(OP).number(0));
    run(conn, sqlx::query(queries::APPLY_MANY).bind(many.finish())).await?;
    let rows = run(conn, apply_one()).await?;
    let (base, log): (i64, String) = match rows.first() {
        Some(row) => (row.try_get(0).map_err(classify)?, row.try_get(2).map_err(classify)?),
        None => (0, String::new()),
    };
    let length = i64::try_from(log.len()).unwrap_or(0);
    let gone = Array::new().array(|one| one.text(NAME).number(base).number(length));
    run(conn, sqlx::query(queries::DELETE).bind(gone.finish())).await?;
    run(conn, sqlx::query(queries::ROLLBACK)).await?;
    Ok(())
}

/// Tries each statement that reads.
pub(super) async fn probe_reads(conn: &mut SqliteConnection) -> Result<(), Fault> {
    run(conn, sqlx::query(queries::DATA_VERSION)).await?;
    let wanted = Array::new().array(|one| one.text(NAME).number(0));
    run(conn, sqlx::query(queries::READ).bind(wanted.finish())).await?;
    run(conn, sqlx::query(queries::PAGE).bind(NAME).bind(0_i64).bind(0_i64).bind(1_i64)).await?;
    run(conn, sqlx::query(queries::RANGE).bind(NAME).bind(NAME).bind(1_i64)).await?;
    Ok(())
}

fn apply_one() -> Query<'static, Sqlite, SqliteArguments> {
    sqlx::query(queries::APPLY_ONE)
        .bind(NAME)
        .bind(0_i64)
        .bind(0_i64)
        .bind("")
        .bind(OP)
        .bind(0_i64)
        .bind(0_i64)
}

async fn run(
    conn: &mut SqliteConnection,
    query: Query<'_, Sqlite, SqliteArguments>,
) -> Result<Vec<SqliteRow>, Fault> {
    query.fetch_all(conn).await.map_err(classify)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hard_link_is_another_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("locks.db");
        std::fs::write(&path, "").unwrap();
        assert_eq!(alias(&path).unwrap(), None);
        check_alias(&path).unwrap();
        std::fs::hard_link(&path, dir.path().join("other.db")).unwrap();
        assert_eq!(alias(&path).unwrap(), Some(Alias::Links(2)));
        let error = check_alias(&path).unwrap_err().to_string();
        assert!(error.contains("2 names") && error.contains("-samefile"), "{error}");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_file_that_is_mounted_by_itself_is_found() {
        let mounts = "/dev/sda / ext4 rw 0 0\n/dev/sda /app/my\\040locks.db ext4 rw 0 0\n";
        assert!(mount::is_point(mounts, Path::new("/app/my locks.db")));
        assert!(!mount::is_point(mounts, Path::new("/app/locks.db")));
        // Every system has such mounts, and a container some of files.
        assert!(mount::is_root(Path::new("/proc")));
        assert!(!mount::is_root(Path::new("/proc/self/mounts")));
        let error = Alias::Mounted.explain();
        assert!(error.1.contains("mount its directory"), "{error:?}");
    }

    #[test]
    fn a_file_that_was_replaced_is_another_one() {
        let dir = tempfile::tempdir().unwrap();
        let (path, new) = (dir.path().join("locks.db"), dir.path().join("new.db"));
        std::fs::write(&path, "").unwrap();
        std::fs::write(&new, "").unwrap();
        let mut files = OpenFiles::of(&path, &path).unwrap();
        files.check().unwrap();
        std::fs::rename(&new, &path).unwrap();
        if cfg!(unix) {
            assert!(files.check().unwrap_err().to_string().contains("replaced"));
        }
        std::fs::remove_file(&path).unwrap();
        assert!(files.check_file().unwrap_err().to_string().contains("deleted"));
        assert_eq!(files.replaced(), Some(&*path));
    }

    #[cfg(unix)]
    #[test]
    fn a_link_that_leads_to_another_file_is_found() {
        use std::os::unix::fs::symlink;

        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        for release in ["one", "two"] {
            std::fs::create_dir(path(release)).unwrap();
            std::fs::write(path(release).join("locks.db"), "").unwrap();
        }
        // A link to the directory, and a link to the file.
        symlink(path("one"), path("current")).unwrap();
        symlink(path("one").join("locks.db"), path("locks.db")).unwrap();
        for (link, given, to) in [
            (path("current"), path("current").join("locks.db"), path("two")),
            (path("locks.db"), path("locks.db"), path("two").join("locks.db")),
        ] {
            let mut files = OpenFiles::of(&path("one").join("locks.db"), &given).unwrap();
            files.check().unwrap();
            std::fs::remove_file(&link).unwrap();
            symlink(to, &link).unwrap();
            assert_eq!(files.replaced(), Some(&*given));
            assert!(files.check().unwrap_err().to_string().contains("replaced"));
        }
    }

    #[test]
    fn a_log_that_was_deleted_is_found_from_when_it_was_seen() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("locks.db");
        std::fs::write(&path, "").unwrap();
        for suffix in ["-wal", "-shm"] {
            let beside = dir.path().join(format!("locks.db{suffix}"));
            let mut files = OpenFiles::of(&path, &path).unwrap();
            files.check().unwrap();
            std::fs::write(&beside, "").unwrap();
            files.check().unwrap();
            std::fs::remove_file(&beside).unwrap();
            assert_eq!(files.replaced(), Some(&*beside));
            assert!(files.check().unwrap_err().to_string().contains(suffix));
            files.reopened();
            files.check().unwrap();
        }
    }
}
