//! Missing rights are reported when the store is opened, not by the first lock.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use dlock_core::{ConfigIssue, Error};
use dlock_sql::{Sqlite, SqliteConfig};
use rustix::thread::{Uid, set_thread_res_uid};
use sqlx::Connection as _;

use crate::file::is_refused;
use crate::support::{LONG, Store, exclusive, raw, take};

/// A user without special rights.
const NOBODY: u32 = 65_534;

/// Opens the file as a user that is not root, since root has all rights. On Linux, a thread can
/// change its user, and the threads that it starts have the same user.
async fn open_as_nobody(path: &Path) -> Result<(), Error> {
    let path = path.to_owned();
    let open = move || {
        let nobody = Uid::from_raw(NOBODY);
        // Only root can change its user. Other users need no change.
        let _ = set_thread_res_uid(nobody, nobody, nobody);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async { Sqlite::open(SqliteConfig::new(path)).await.map(drop) })
    };
    tokio::task::spawn_blocking(|| std::thread::spawn(open).join().unwrap()).await.unwrap()
}

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// Waits until the last connection has closed and removed its files.
async fn closed(store: &Store) {
    let closed = async {
        while log_of(store).exists() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(LONG, closed).await.expect("still open");
}

fn log_of(store: &Store) -> PathBuf {
    store.path().with_file_name("locks.db-wal")
}

/// A file without connections, with these rights, in a directory with those rights.
async fn store(file: u32, dir: u32, journal: &'static str) -> Store {
    let store = Store::new();
    drop(store.open().await);
    closed(&store).await;
    let mut conn = raw(&store.path()).await;
    sqlx::raw_sql(journal).execute(&mut conn).await.unwrap();
    conn.close().await.unwrap();
    chmod(&store.path(), file);
    chmod(store.path().parent().unwrap(), dir);
    store
}

const WAL: &str = "PRAGMA journal_mode = WAL";
const DELETE: &str = "PRAGMA journal_mode = DELETE";

#[tokio::test]
async fn each_missing_right_is_reported_at_start() {
    for (file, dir, journal) in [
        (0o444, 0o777, WAL),
        (0o444, 0o777, DELETE),
        (0o666, 0o555, WAL),
        (0o666, 0o555, DELETE),
        (0o444, 0o555, WAL),
        (0o000, 0o777, WAL),
    ] {
        let store = store(file, dir, journal).await;
        let opened = open_as_nobody(&store.path()).await;
        chmod(store.path().parent().unwrap(), 0o777);
        let error = opened.expect_err(&format!("{file:o} in {dir:o}, {journal}"));
        is_refused(&error, ConfigIssue::Access, "rights");
    }
    for journal in [WAL, DELETE] {
        let store = store(0o666, 0o777, journal).await;
        open_as_nobody(&store.path()).await.unwrap();
    }
}

#[tokio::test]
async fn a_read_only_log_is_reported_at_start() {
    let store = store(0o666, 0o777, WAL).await;
    // The state after a program was killed.
    let client = store.open().await;
    let (log, copy) = (log_of(&store), store.path().with_file_name("copy"));
    take(&client, &exclusive("x")).await;
    fs::copy(&log, &copy).unwrap();
    drop(client);
    closed(&store).await;
    fs::rename(&copy, &log).unwrap();
    chmod(&log, 0o444);
    let error = open_as_nobody(&store.path()).await.unwrap_err();
    is_refused(&error, ConfigIssue::Access, "rights");
}
