//! A file that is mounted by itself, as `docker run --volume /var/lib/locks.db:/locks.db` does.

use std::{fs, process::Command};

use dlock_core::ConfigIssue;
use dlock_sql::{Sqlite, SqliteConfig};
use dlock_testkit::{Stop, Verdict, judge};

use crate::file::{in_child, is_refused, of_child, passed};
use crate::support::Store;

#[tokio::test]
async fn opens_what_is_mounted() {
    let Some(file) = of_child() else { return };
    for create in [true, false] {
        let config = SqliteConfig::new(&file).with_create_schema(create);
        let error = Sqlite::open(config).await.unwrap_err();
        is_refused(&error, ConfigIssue::Access, "mount its directory");
    }
    assert!(!file.with_file_name("mounted.db-wal").exists());
    // Its directory is mounted too, which is harmless.
    let config = SqliteConfig::new(file.with_file_name("dir").join("locks.db"));
    Sqlite::open(config).await.unwrap();
}

async fn mounted() -> Verdict {
    let store = Store::new();
    drop(store.open().await);
    let path = store.path();
    let (file, dir) = (path.with_file_name("mounted.db"), path.with_file_name("dir"));
    fs::write(&file, "")?;
    fs::create_dir(&dir)?;
    // Only the child sees the mounts.
    let script = format!(
        "cd '{}' && mount --bind locks.db mounted.db && mount --bind . dir && exec \"$@\"",
        path.parent().unwrap().display()
    );
    for namespace in ["-m", "-rm"] {
        let before = ["unshare", namespace, "sh", "-c", script.as_str(), "sh"];
        let may = Command::new(before[0]).args(&before[1..]).arg("true").output();
        if may.is_ok_and(|output| output.status.success()) {
            passed(&in_child(&file, "mounts::opens_what_is_mounted", &before));
            return Ok(());
        }
    }
    Err(Stop::missing("this user may not mount"))
}

#[tokio::test]
async fn a_file_that_is_mounted_by_itself_is_refused() {
    judge("mount", mounted().await);
}
