//! The findings about the file.

use std::{fs, path::Path};

use dlock_core::Finding;
use sqlx::{Row as _, SqliteConnection};

use super::{
    error::classify,
    file::{self, OpenFiles, REPLACED, RESTART, alias, may_write},
    queries, schema,
};
use crate::engine::{Fault, of_tables};

/// The names of network file systems: SQLite's locks do not hold on most of them, and its shared
/// memory on none.
const REMOTE: [&str; 10] =
    ["nfs", "cifs", "smb", "9p", "ceph", "fuse.sshfs", "fuse.gluster", "lustre", "afs", "virtiofs"];

/// Returns the findings about the file.
pub(super) async fn examine(
    conn: &mut SqliteConnection,
    opened: &OpenFiles,
) -> Result<Vec<Finding>, Fault> {
    let mut findings = vec![Finding::fine(
        "version",
        format!("SQLite {:.20}", text(conn, queries::LIBRARY).await?),
    )];
    let mode = text(conn, queries::JOURNAL).await?;
    findings.push(journal(&mode));
    findings.push(encoding(&text(conn, queries::ENCODING).await?));
    findings.push(location(opened));
    findings.push(names(opened.path()));
    findings.extend(mounted(opened.path()).map(|kind| file_system(&kind)));
    findings.push(of_tables(schema::prepare(conn, false).await)?);
    Ok(findings)
}

/// Returns the single value of a statement.
pub(super) async fn text(conn: &mut SqliteConnection, sql: &'static str) -> Result<String, Fault> {
    let rows = sqlx::query(sql).fetch_all(conn).await.map_err(classify)?;
    rows.first().map_or(Ok(String::new()), |row| row.try_get(0)).map_err(classify)
}

fn journal(mode: &str) -> Finding {
    match mode {
        "wal" => Finding::fine("journal", "the file is in WAL mode"),
        _ => Finding::warning(
            "journal",
            format!("the file is in {mode:.20} mode, in which readers block writers"),
            "run PRAGMA journal_mode = WAL on it",
        ),
    }
}

fn encoding(encoding: &str) -> Finding {
    match encoding {
        "UTF-8" => Finding::fine("encoding", "texts are UTF-8"),
        _ => Finding::warning(
            "encoding",
            format!(
                "texts are {encoding:.20}, which does not keep names in the order of their bytes"
            ),
            "create the file again with dlock.create_schema=true: a list of names may be \
             incomplete",
        ),
    }
}

/// Returns the finding about the place of the file. It does not open the file: see [`mod@file`].
fn location(opened: &OpenFiles) -> Finding {
    const ABOUT: &str = "file";
    let may = |path: Option<&Path>| path.map_or(Ok(()), may_write);
    if let Some(path) = opened.replaced() {
        return Finding::wrong(ABOUT, format!("{} {REPLACED}", path.display()), RESTART);
    }
    let path = opened.path();
    if let Err(error) = may(Some(path)).and_then(|()| may(path.parent())) {
        return Finding::wrong(
            ABOUT,
            format!("it can't be written, or its directory ({error})"),
            "give this user the right to write to the file and its directory (chown, chmod)",
        );
    }
    Finding::fine(ABOUT, "it can be written, and so can its directory")
}

fn names(path: &Path) -> Finding {
    const ABOUT: &str = "names";
    match alias(path) {
        Ok(None) => Finding::fine(ABOUT, "the file has one name"),
        Ok(Some(alias)) => {
            let (found, remedy) = alias.explain();
            Finding::wrong(ABOUT, found, remedy)
        }
        Err(error) => Finding::wrong(ABOUT, format!("the file can't be found ({error})"), RESTART),
    }
}

fn file_system(kind: &str) -> Finding {
    match REMOTE.iter().any(|remote| kind.starts_with(remote)) {
        true => Finding::wrong(
            "file system",
            format!("the file is on {kind:.40}, which is shared with other machines"),
            "move the file to a local disk; for locks of several machines use a server",
        ),
        false => Finding::fine("file system", format!("the file is on {kind:.40}")),
    }
}

/// Returns the kind of the file system of the file, if the system shows it.
fn mounted(path: &Path) -> Option<String> {
    kind_of(&fs::read_to_string("/proc/self/mounts").ok()?, path)
}

/// Returns the kind of the file system of a file: the file is on the deepest mount point above it,
/// and on the last mount there.
fn kind_of(mounts: &str, path: &Path) -> Option<String> {
    let mut found: Option<(usize, &str)> = None;
    for (point, kind) in file::mounts(mounts) {
        let depth = Path::new(&point).components().count();
        if path.starts_with(&point) && found.is_none_or(|(deepest, _)| depth >= deepest) {
            found = Some((depth, kind));
        }
    }
    found.map(|(_, kind)| kind.to_owned())
}

#[cfg(test)]
mod tests {
    use dlock_core::Level;

    use super::*;

    #[test]
    fn a_file_of_another_machine_is_wrong() {
        let mounts = "/dev/sda / ext4 rw 0 0\nserver:/x /mnt/with\\040blank nfs4 rw 0 0\n\
                      tmpfs /mnt/with\\040blank/local tmpfs rw 0 0\n";
        for (path, kind, level) in [
            ("/var/locks.db", "ext4", Level::Fine),
            ("/mnt/with blank/locks.db", "nfs4", Level::Wrong),
            ("/mnt/with blank/local/locks.db", "tmpfs", Level::Fine),
            ("/mnt/with blankets/locks.db", "ext4", Level::Fine),
        ] {
            assert_eq!(kind_of(mounts, Path::new(path)).as_deref(), Some(kind), "{path}");
            assert_eq!(file_system(kind).level, level, "{path}");
        }
        assert_eq!(kind_of("", Path::new("/x")), None);
    }

    #[test]
    fn wrong_settings_are_reported() {
        assert_eq!(journal("delete").level, Level::Warning);
        assert_eq!(encoding("UTF-16le").level, Level::Warning);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("locks.db");
        std::fs::write(&path, "").unwrap();
        let opened = OpenFiles::of(&path, &path).unwrap();
        assert_eq!(location(&opened).level, Level::Fine);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(location(&opened).level, Level::Wrong);
        assert_eq!(names(&path).level, Level::Wrong);
    }
}
