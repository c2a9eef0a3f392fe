//! Nobody but SQLite opens and closes the file, by which the process would lose its locks on it.

use std::{mem::MaybeUninit, os::unix::fs::MetadataExt as _};

use rustix::fs::inotify::{CreateFlags, Reader, WatchFlags, add_watch, init};
use rustix::{fd::OwnedFd, io::Errno};

use super::{in_child, passed};
use crate::support::{Store, attempt, exclusive, free, granted, name, queue, take};

/// Which files of the store were opened or closed since it was asked last.
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

#[tokio::test]
async fn whoever_comes_and_goes_leaves_the_log_to_those_who_use_it() {
    let store = Store::new();
    let client = store.open().await;
    let log = store.path().with_file_name("locks.db-wal");
    let before = log.metadata().unwrap().ino();
    let visit = || {
        passed(&in_child(&store.path(), "outside::visitor", &[]));
        assert_eq!(log.metadata().map(|log| log.ino()).ok(), Some(before), "the log is gone");
    };
    visit();
    client.examine().await.unwrap();
    visit();
    // Another client of this very process, which closes what it has opened, and one that is refused.
    drop(store.open().await);
    let other = store.path().with_file_name("other.db");
    std::fs::hard_link(store.path(), &other).unwrap();
    dlock_sql::Sqlite::open(store.config()).await.unwrap_err();
    std::fs::remove_file(&other).unwrap();
    visit();
    take(&client, &exclusive("x")).await;
}
