//! Only SQLite opens and closes the file, since a close would drop the locks of the process.

use std::{fs, mem::MaybeUninit, os::unix::fs::MetadataExt as _};

use dlock_core::ConfigIssue;
use dlock_sql::{Sqlite, SqliteConfig};
use rustix::fs::inotify::{CreateFlags, Reader, WatchFlags, add_watch, init};
use rustix::fs::{FlockOperation, fcntl_lock};
use rustix::{fd::OwnedFd, io::Errno};

use crate::file::{in_child, is_refused, of_child, passed};
use crate::support::{Store, attempt, exclusive, free, granted, name, queue, take};

/// Returns the files of the store that were opened or closed since the last call.
fn touched(watch: &OwnedFd) -> Vec<String> {
    let mut buffer = [MaybeUninit::uninit(); 4096];
    let mut reader = Reader::new(watch, &mut buffer);
    let mut names = Vec::new();
    loop {
        match reader.next() {
            Ok(event) => {
                names.extend(event.file_name().map(|name| name.to_str().unwrap().to_owned()))
            }
            Err(Errno::AGAIN) => break,
            Err(error) => panic!("{error}"),
        }
    }
    names.retain(|name: &String| !name.contains("-dlock-"));
    names
}

#[tokio::test]
async fn no_operation_opens_or_closes_the_file() {
    let store = Store::new();
    let watch = init(CreateFlags::NONBLOCK).unwrap();
    let flags = WatchFlags::OPEN | WatchFlags::CLOSE;
    add_watch(&watch, store.path().parent().unwrap(), flags).unwrap();
    let (one, other) = (store.open().await, store.open().await);
    let (first, second) = (exclusive("x"), exclusive("x"));
    take(&one, &first).await;
    assert!(!touched(&watch).is_empty(), "nothing is noticed");

    for client in [&one, &other] {
        client.examine().await.unwrap();
        client.list("", 10).await.unwrap();
        client.inspect(&name("x")).await.unwrap();
        client.acquire(&attempt("x")).await.unwrap();
    }
    queue(&other, &second).await;
    free(&one, &first).await;
    granted(&other, &second).await;
    free(&other, &second).await;
    assert_eq!(touched(&watch), Vec::<String>::new());
}

/// Under another name, SQLite would create another log, and remove it when the store refuses the
/// name later.
#[tokio::test]
async fn a_second_name_is_refused_before_the_file_is_opened() {
    let store = Store::new();
    drop(store.open().await);
    let dir = store.path().with_file_name("dir");
    fs::create_dir(&dir).unwrap();
    let other = dir.join("other.db");
    fs::hard_link(store.path(), &other).unwrap();
    let watch = init(CreateFlags::NONBLOCK).unwrap();
    add_watch(&watch, &dir, WatchFlags::OPEN | WatchFlags::CREATE).unwrap();
    for create in [true, false] {
        let config = SqliteConfig::new(&other).with_create_schema(create);
        let error = Sqlite::open(config).await.unwrap_err();
        is_refused(&error, ConfigIssue::Access, "2 names");
    }
    assert_eq!(touched(&watch), Vec::<String>::new());
    drop(fs::File::open(&other).unwrap());
    assert!(!touched(&watch).is_empty(), "nothing is noticed");
}

/// Another program, which must find the locks on the file and on the shared memory. Older versions
/// of SQLite check only those on the file.
#[tokio::test]
async fn finds_locks() {
    let Some(file) = of_child() else { return };
    for name in ["locks.db", "locks.db-shm"] {
        let file = fs::File::options().read(true).write(true).open(file.with_file_name(name));
        let taken = fcntl_lock(file.unwrap(), FlockOperation::NonBlockingLockExclusive);
        assert!(matches!(taken, Err(Errno::AGAIN | Errno::ACCESS)), "{name} has no locks");
    }
}

#[tokio::test]
async fn a_short_lived_process_leaves_the_log_to_its_users() {
    let store = Store::new();
    let client = store.open().await;
    let log = store.path().with_file_name("locks.db-wal");
    let before = log.metadata().unwrap().ino();
    let visit = || {
        passed(&in_child(&store.path(), "descriptors::finds_locks", &[]));
        passed(&in_child(&store.path(), "file::visitor", &[]));
        assert_eq!(log.metadata().map(|log| log.ino()).ok(), Some(before), "the log is gone");
    };
    visit();
    client.examine().await.unwrap();
    visit();
    // Another client of the same process, which closes its files, and one that is refused.
    drop(store.open().await);
    let other = store.path().with_file_name("other.db");
    fs::hard_link(store.path(), &other).unwrap();
    Sqlite::open(store.config()).await.unwrap_err();
    fs::remove_file(&other).unwrap();
    visit();
    take(&client, &exclusive("x")).await;
}
